package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class SizesTest {
    @Test
    void what_is_read_is_what_was_written_less_each_readers_own_part() {
        Sizes sizes = new Sizes();
        sizes.wrote(1, "a", 100);
        sizes.wrote(1, "a", 50);
        sizes.wrote(2, "b", 10);
        sizes.wrote(-1, "c", 10);
        assertEquals(Map.of("a", 100L, "b", 7L), sizes.toRead(List.of(1, 2), 3));
        assertEquals(Map.of("a", 150L), sizes.toRead(List.of(1), 0));
        assertEquals(Map.of(), sizes.toRead(List.of(1, 2), 1), "one alone reads its own");
        assertEquals(Map.of(), sizes.toRead(List.of(-1, 7), 3));
    }

    @Test
    void shuffles_that_are_remembered_are_bounded() {
        Sizes sizes = new Sizes();
        for (int shuffle = 0; shuffle < 3 * Sizes.MAX_SHUFFLES; shuffle++) {
            sizes.wrote(shuffle, "a", 1);
        }
        assertEquals(Sizes.MAX_SHUFFLES, sizes.size());
        assertEquals(Map.of("a", 1L), sizes.toRead(List.of(3 * Sizes.MAX_SHUFFLES - 1), 0));
    }
}
