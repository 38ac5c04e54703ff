#!/bin/sh
# Installs what the tests and `make run` need beyond rustup, gcc and make. Looks for the programs
# themselves, so that nothing is fetched when all of them are there.
#
#   install-deps.sh          a Rust toolchain, and the programs that shape links
#   install-deps.sh test     these, Redis, and what makes, mounts and freezes a file system; and fetches a Prometheus, which is not
#                            installed: it would serve at its port
#   install-deps.sh rust     a Rust toolchain with rustfmt and clippy
#   install-deps.sh jvm      a JDK and Maven
#   install-deps.sh ebpf     a Rust toolchain, and what it takes to build the program that tags packets in the kernel
set -eu

# A rustup without a toolchain, or one installed with its smallest profile.
if ! cargo --version >/dev/null 2>&1; then
    command -v rustup >/dev/null 2>&1 || {
        echo "install-deps: neither cargo nor rustup here; see https://rustup.rs" >&2
        exit 1
    }
    rustup default stable
fi
if [ "${1:-}" = rust ]; then
    for part in fmt clippy; do
        cargo "$part" --version >/dev/null 2>&1 || rustup component add rustfmt clippy
    done
    exit 0
fi

# Each line: a program, and the Debian or Ubuntu package that brings it.

needed='
ip      iproute2
bridge  iproute2
tc      iproute2
iperf3  iperf3
'
[ "${1:-}" != test ] || needed="$needed
redis-server redis-server
mkfs.ext4    e2fsprogs
fsfreeze     util-linux
mount        mount
"
[ "${1:-}" != ebpf ] || needed='
clang       clang
pkg-config  pkg-config
'

[ "${1:-}" != jvm ] || needed='
javac   default-jdk-headless
mvn     maven
'

# What reads the program's file, and unpacks parts of it: headers, and the libraries that come with them.
has_header() {
    [ -e "/usr/include/$1" ] || [ -e "/usr/local/include/$1" ]
}

# Normal users often lack the folders where tc is; the test bed looks there too.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

# The package is unpacked where builds are: nothing of it runs but in tests.
tools="${CARGO_TARGET_DIR:-target}/tools/prometheus"
if [ "${1:-}" = test ] && ! command -v prometheus >/dev/null 2>&1 && [ ! -x "$tools/usr/bin/prometheus" ]; then
    mkdir -p "$tools"
    {
        # Lists of packages may be as old as the machine, or not there.
        download() { (cd "$tools" && apt-get download -qq -o APT::Sandbox::User=root prometheus); }
        { download 2>/dev/null || { [ "$(id -u)" -eq 0 ] && apt-get update -qq && download; }; } && dpkg -x "$tools"/prometheus_*.deb "$tools" && rm -f "$tools"/*.deb
    } || echo "install-deps: no Prometheus could be fetched; tests with one are skipped" >&2
fi

missing=$({
    echo "$needed" | while read -r program package; do
        [ -z "$program" ] || command -v "$program" >/dev/null 2>&1 || echo "$package"
    done
    [ "${1:-}" != ebpf ] || has_header libelf.h || echo libelf-dev
    [ "${1:-}" != ebpf ] || has_header zlib.h || echo zlib1g-dev
} | sort -u | tr '\n' ' ')
missing=${missing% }

if [ -z "$missing" ]; then
    exit 0
fi

by_hand() {
    echo "install-deps: $1; please install: $missing" >&2
    exit 1
}

command -v apt-get >/dev/null 2>&1 || by_hand "no apt-get here"
if [ "$(id -u)" -eq 0 ]; then
    as_root=
elif sudo -n true 2>/dev/null; then
    as_root='sudo -n'
else
    by_hand "neither root nor sudo without a password"
fi

echo "install-deps: installing $missing"
# Word splitting is meant: as_root may be empty, missing may be several names.
# shellcheck disable=SC2086
{
    $as_root apt-get update -qq || echo "install-deps: apt-get update failed, trying with the lists at hand" >&2
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
}
# Tests start a Redis of their own; the service that the package starts and enables is nobody's wish.
case " $missing " in
*" redis-server "*) $as_root systemctl disable --now redis-server >/dev/null 2>&1 || true ;;
esac
