#!/bin/sh
# Builds the driver against the ns-3 of a Python environment: build.sh ENVIRONMENT OUTPUT. To make the environment:
# python3 -m venv ENVIRONMENT && ENVIRONMENT/bin/pip install ns3==3.44.post0
set -eu
ns3=$(echo "$1"/lib/python3*/site-packages/ns3)
libraries=$ns3/lib64
flags=
for part in core network internet point-to-point traffic-control bridge stats; do flags="$flags -lns3.44-$part"; done
exec g++ -std=c++20 -O2 -I "$ns3/include" -o "$2" "$(dirname "$0")/driver.cc" -L "$libraries" -Wl,-rpath,"$libraries" \
    -Wl,--allow-shlib-undefined $flags
