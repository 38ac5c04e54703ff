//! The page of all metrics.

use weir_metrics::{Kind, Metric, PROCESS};

const HEAD: &str = "# Metrics

`--metrics IP:PORT` has a daemon serve, over HTTP and to every client that reaches it:

| path | answer |
|---|---|
| `/metrics` | what is below, as [OpenMetrics](https://prometheus.io/docs/specs/om/open_metrics_spec/) text |
| `/healthz` | 200 if the daemon answers within two seconds, else 503: start it anew |
| `/readyz` | 200 if it takes work, else 503 and why: an agent that is drained, whose journal's disk does not keep up, or whose spool's is full |

Looks are shared: who asks within 200 ms of the last one gets what was seen then. 64 connections are served at once (fewer where
descriptors are few); for one more the oldest is closed, and each ends after two minutes, or five seconds without a request. An agent without its coordinator is ready: it serves, and its flows share as TCP has
them share (`weir_agent_lease`).

How many series there are follows from the code: none has the name of a host, a coflow or a tenant. Prometheus adds which process each is of.

```yaml
# prometheus.yml
scrape_configs:
  - job_name: weir
    scrape_interval: 5s
    static_configs:
      - targets: [\"10.0.0.1:9470\", \"10.0.0.10:9471\", \"10.0.0.11:9471\"]
rule_files: [\"alerts.yml\"]
```

[alerts.yml](../deploy/alerts.yml) has rules to be woken by, [dashboard.json](../deploy/dashboard.json) a dashboard for Grafana; a test has a real
Prometheus read both beside a coordinator and agents.

This page is printed by `weir config metrics`; a test holds it to the code, and the code to the page.
";

/// Daemons and their metrics.
fn daemons() -> [(&'static str, &'static [Metric]); 6] {
    [
        ("`weir coordinator`", weir_daemon::coordinator::METRICS),
        ("`weir agent`", weir_daemon::agent::METRICS),
        ("`weir relay`", weir_daemon::relay::METRICS),
        ("`weir controller`, `weir controller serve`", weir_controller::server::METRICS),
        ("`weir controller decide`", weir_controller::decider::METRICS),
        ("Every process", PROCESS),
    ]
}

pub(crate) fn page() -> String {
    let mut page = HEAD.to_owned();
    for (who, metrics) in daemons() {
        page.push_str(&format!("\n## {who}\n| metric | kind | labels | what it says |\n|---|---|---|---|\n"));
        for metric in metrics {
            let (name, kind) = match metric.kind {
                Kind::Counter => (format!("{}_total", metric.name), "counter"),
                Kind::Gauge => (metric.name.to_owned(), "gauge"),
                Kind::Histogram => (metric.name.to_owned(), "histogram"),
            };
            let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            page.push_str(&format!("| `{name}` | {kind} | {} | {} |\n", labels.join(", "), metric.help));
        }
    }
    page.push_str("\n## Events of the coordinator\nValues of `event` of `weir_coordinator_events_total`; `weir status --json` has them too.\n\n| event | what is counted |\n|---|---|\n");
    for (event, meaning) in weir_core::coordinator::EVENTS {
        page.push_str(&format!("| `{event}` | {meaning} |\n"));
    }
    page
}
