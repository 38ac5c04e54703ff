package io.weir.spark;

/** Bytes as hexadecimal digits. */
final class Hex {
    private Hex() {}

    static String of(byte[] bytes) {
        StringBuilder text = new StringBuilder(2 * bytes.length);
        for (byte each : bytes) {
            text.append(Character.forDigit(each >> 4 & 15, 16)).append(Character.forDigit(each & 15, 16));
        }
        return text.toString();
    }

    static byte[] parse(String text) {
        byte[] bytes = new byte[text.length() / 2];
        for (int at = 0; at < bytes.length; at++) {
            int high = Character.digit(text.charAt(2 * at), 16);
            int low = Character.digit(text.charAt(2 * at + 1), 16);
            if (high < 0 || low < 0) {
                throw new IllegalArgumentException("no hexadecimal digits");
            }
            bytes[at] = (byte) (high << 4 | low);
        }
        if (2 * bytes.length != text.length()) {
            throw new IllegalArgumentException("half a byte");
        }
        return bytes;
    }
}
