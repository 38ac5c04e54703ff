#!/usr/bin/env python3
"""Runs cases in ns-3 and writes what they gave: record.py DRIVER [NAME ...]. ns3/build.sh makes the driver."""

import csv
import json
import pathlib
import subprocess
import sys
import tomllib

HERE = pathlib.Path(__file__).parent
UNITS = {"gbit": 1e9, "mbit": 1e6, "kB": 1e3, "MB": 1e6, "B": 1, "us": 1e3, "ms": 1e6, "ns": 1, "s": 1e9}
CLASSES = [("up to 100 kB", 100_000), ("to 1 MB", 1_000_000), ("to 10 MB", 10_000_000), ("above", 1 << 62)]


def number(text):
    """A quantity with its unit: bit/s, bytes or nanoseconds."""
    for unit in sorted(UNITS, key=len, reverse=True):
        if text.endswith(unit):
            return float(text[: -len(unit)]) * UNITS[unit]
    raise ValueError(text)


def flows_of(case):
    if "flows" in case:
        return [(round(start * 1000), *rest) for start, *rest in case["flows"]]
    with open(HERE / "lists" / case["list"], newline="") as file:
        return [tuple(map(int, row.values())) for row in csv.DictReader(file)]


def request(case):
    keys = {
        "rate": "rate", "spine_rate": "spine_rate", "link_delay": "link_delay_ns", "host_delay": "host_delay_ns",
        "buffer": "buffer", "marking": "marking", "rto": "rto_ns", "until": "until_ns", "sample_from": "sample_from_ns",
    }
    lines = [f"transport {case['transport']}", f"sack {int(case.get('sack', True))}"]
    lines += [f"delayed_acks {int(case.get('delayed_acks', False))}"]
    lines += [f"{key} {case[key]}" for key in ("hosts", "racks", "spines", "initial_window") if key in case]
    lines += [f"{name} {round(number(case[key]))}" for key, name in keys.items() if key in case]
    if "sample_from" in case:
        lines.append("sample_ns 10000")
    lines += ["flow " + " ".join(map(str, flow)) for flow in flows_of(case)]
    return "\n".join(lines) + "\n"


def summary(case, output):
    flows = flows_of(case)
    times, received, marked, dropped, queue, timeouts = {}, {}, 0, 0, 0.0, 0
    for line in output.splitlines():
        what, *rest = line.split()
        if what == "flow":
            index, time, got = map(int, rest)
            received[index] = got
            if time >= 0:
                times[index] = time
        elif what == "port":
            marked += int(rest[4])
            dropped += int(rest[5])
            queue = max(queue, float(rest[6]))
        elif what == "timeouts":
            timeouts = int(rest[0])
    result = {"marked": marked, "dropped": dropped, "timeouts": timeouts}
    if "sample_from" in case:
        result["queue_bytes"] = round(queue, 1)
        result["received"] = [received.get(index, 0) for index in range(len(flows))]
        return result
    mean = lambda indices: sum(times[index] for index in indices) / len(indices) / 1e6
    result["finished"] = len(times)
    result["mean_ms"] = round(mean(list(times)), 6)
    result["classes"] = {}
    least = 0
    for name, most in CLASSES:
        inside = [index for index in times if least < flows[index][3] <= most]
        least = most
        if inside:
            result["classes"][name] = {"flows": len(inside), "mean_ms": round(mean(inside), 6)}
    return result


def main():
    driver, *names = sys.argv[1:]
    for path in sorted((HERE / "cases").glob("*.toml")):
        if names and path.stem not in names:
            continue
        case = tomllib.loads(path.read_text())
        run = subprocess.run([driver], input=request(case), capture_output=True, text=True, check=True)
        result = {"made_by": "ns-3.44", **summary(case, run.stdout)}
        (HERE / "recorded" / f"{path.stem}.json").write_text(json.dumps(result, indent=2) + "\n")
        print(path.stem, {key: result[key] for key in result if key not in ("classes", "received")}, flush=True)


if __name__ == "__main__":
    main()
