//! `weir experiment live`: the part of an experiment between sites that is repeated with real bytes.

use super::written::{write_numbers, write_text};
use super::{LiveArgs, check_policies, chosen, failed, load_trace};
use crate::commands::workload;
use weir_console::{Failure, controller_options, progress};
use weir_live::sites::{self, LiveResults, Processes};
use weir_results::Provenance;

pub(super) fn live(args: &LiveArgs) -> Result<(), Failure> {
    for (name, folder, experiment) in chosen(&args.dir, &args.name)? {
        let Some(live) = &experiment.live else {
            return Err(Failure::Input(format!("{name} has no live part; siphon-sort has one")));
        };
        check_policies(&name, &experiment)?;
        let source = load_trace(&args.trace)?;
        let stem = folder.join(format!("live-{}", weir_experiment::stem(source.name())));
        let mut files = workload::inputs("--trace", &args.trace);
        let mut file = |ending: &str| files.writes("--write", &stem.with_extension(ending));
        let written = args.write.then(|| Ok::<_, Failure>([file("json")?, file("md")?])).transpose()?;
        let made_by = Provenance::of_experiment(&["experiment", "live", &name, "--trace", &args.trace]);
        let mut results = LiveResults::new(made_by, &live.point, source.name());
        for &seed in experiment.live_seeds(live) {
            let work = experiment.live_work(live, &source, seed);
            let work = work.map_err(|error| failed(&name, error))?;
            for policy in &live.policies {
                let processes =
                    Processes { program: std::env::current_exe()?, controller: controller_options(policy)? };
                let bytes = work.coflows.iter().map(|coflow| coflow.bytes().0).sum();
                let bar = progress::bytes(bytes, format!("{policy}, seed {seed}"));
                let run = sites::run(live, policy, seed, &work, processes, |moved| bar.set_position(moved));
                bar.finish_and_clear();
                let run = run?;
                println!("{}", sites::line(&run));
                results.runs.push(run);
            }
        }
        let page = sites::page(&experiment, live, &name, &results);
        println!("\n{page}");
        if let Some([numbers, text]) = &written {
            write_numbers(numbers, &results)?;
            write_text(text, &page)?;
        }
    }
    Ok(())
}
