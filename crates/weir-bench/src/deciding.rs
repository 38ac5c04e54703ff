//! `weir bench deciding`: how long decisions between sites take, and how many rounds decision makers run.

use super::daemons::own_command;
use clap::Args;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::process::Stdio;
use std::time::Instant;
use weir_console::DeciderArgs;
use weir_console::Failure;
use weir_controller::decision::Proposal;
use weir_controller::maker::{Maker, MakerSettings, Step};
use weir_controller::records::{CoflowState, RelayRecord, State};
use weir_controller::store::{RedisStore, Report, Store};
use weir_results::{mean, percentile, thread_cpu_secs};
use weir_testbed::live::OwnChild;

/// Measurements of each link.
const SAMPLES: usize = 200;
/// Bytes of a coflow from one site to another, least and most.
const BYTES: (f64, f64) = (1e6, 1e9);
/// Mean bandwidth of a link in bytes per second, least and most; what it has at a time is between half of it and once
/// and a half.
const MEAN_BANDWIDTH: (f64, f64) = (5e6, 1e8);

/// Draws coflows between sites, and prints, for decisions on them:
///
/// first order: from the state to the best order at the mean bandwidths, with splits over relays; the decision that is
/// in force until rounds are done.
///
/// all rounds: until the last decision, on one processor; then with rounds that end once the best order is told
/// from the second.
///
/// after an event: all rounds again, when one coflow arrived or ended and no other moved; beside a decision maker
/// that remembers nothing.
///
/// rounds per second: of one and of two decision makers, each a process of its own, that go on without end; then the same
/// per second of each one's processor time, which is what they do where processors are free.
///
/// Times are the processor's, which others that use it do not change much.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct DecidingArgs {
    /// Number of live coflows that are decided on
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    coflows: u32,
    /// Sites, each with a link to each other
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=128))]
    sites: u32,
    #[command(flatten)]
    decider: DeciderArgs,
    /// Decisions to time, each on other coflows
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    decisions: u32,
    /// How long decision makers run for rounds per second
    #[arg(long, value_name = "S", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: u32,
    /// A Redis that the two decision makers share their tallies over [default: they do not]
    #[arg(long, value_name = "redis://HOST:PORT")]
    store: Option<String>,
    /// As one of the decision makers, on the state of this epoch
    #[arg(long, hide = true)]
    worker_epoch: Option<u64>,
}

/// Coflows between sites, by a seed.
fn state(args: &DecidingArgs, seed: u64) -> State {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let site = |random: &mut ChaCha8Rng| random.random_range(0..args.sites);
    let relay = |site: u32| RelayRecord { site, data_address: String::new(), session: 0 };
    let mut state = State {
        relays: (0..args.sites).map(|site| (format!("relay-{site}"), relay(site))).collect(),
        ..State::default()
    };
    for pair in (0..args.sites).flat_map(|from| (0..args.sites).map(move |to| (from, to))) {
        let mean = between(&mut random, MEAN_BANDWIDTH);
        let samples = (0..SAMPLES).map(|_| mean * random.random_range(0.5..1.5)).collect();
        state.samples.insert(pair, samples);
    }
    for id in 1..=u64::from(args.coflows) {
        let mut coflow = CoflowState { arrival_ns: id, ..CoflowState::default() };
        for _ in 0..=site(&mut random) {
            let (from, to) = (site(&mut random), site(&mut random));
            let bytes = between(&mut random, BYTES);
            if from != to {
                coflow.left.insert((from, to), bytes);
            }
        }
        state.coflows.insert(id, coflow);
    }
    state
}

/// A number whose logarithm is anywhere between those of two, each as likely.
fn between(random: &mut impl Rng, (least, most): (f64, f64)) -> f64 {
    least * (most / least).powf(random.random_range(0.0..1.0))
}

fn maker(settings: MakerSettings, early: bool) -> Maker {
    Maker::new("bench".to_owned(), 1, MakerSettings { early, ..settings })
}

/// Times of one decision in milliseconds, from the state on.
struct Taken {
    first_ms: f64,
    last_ms: f64,
    last: Proposal,
}

/// Lets a decision maker decide alone.
fn decide(maker: &mut Maker, epoch: u64, state: &State) -> Result<Taken, Failure> {
    let start = thread_cpu_secs();
    let millis = || (thread_cpu_secs() - start) * 1e3;
    maker.begin(epoch, state);
    let (mut first_ms, mut last) = (None, None);
    loop {
        match maker.step() {
            Step::Propose(proposal) => {
                first_ms.get_or_insert_with(millis);
                last = Some((proposal, millis()));
            }
            Step::Share(tally) => maker.totals(&[tally]),
            Step::Done => break,
        }
    }
    match (first_ms, last) {
        (Some(first_ms), Some((last, last_ms))) => Ok(Taken { first_ms, last_ms, last }),
        _ => Err(Failure::Run(anyhow::anyhow!("a decision maker ended without a decision"))),
    }
}

fn say(what: &str, mut millis: Vec<f64>, more: &str) {
    millis.sort_by(f64::total_cmp);
    println!(
        "{what:<42} {:>8.3} ms median, {:>8.3} ms p95{more}",
        percentile(&millis, 0.5),
        percentile(&millis, 0.95)
    );
}

/// Decisions by fresh decision makers.
fn time_decisions(args: &DecidingArgs) -> Result<(), Failure> {
    let settings = args.decider.maker();
    let (mut first, mut all, mut early, mut rounds) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for number in 0..u64::from(args.decisions) {
        let state = state(args, args.decider.seed + number);
        let taken = decide(&mut maker(settings, false), 1, &state)?;
        first.push(taken.first_ms);
        all.push(taken.last_ms);
        let taken = decide(&mut maker(settings, true), 1, &state)?;
        early.push(taken.last_ms);
        rounds.push(f64::from(taken.last.rounds));
    }
    say("first order", first, "");
    say(&format!("all {} rounds", settings.rounds), all, "");
    let more = format!(" ({:.0} rounds on average)", mean(&rounds));
    say("rounds that end early", early, &more);
    Ok(())
}

/// All rounds after an event, by a decision maker that remembers and by one that does not.
fn time_events(args: &DecidingArgs) -> Result<(), Failure> {
    let settings = args.decider.maker();
    for event in ["an arrival", "a completion"] {
        let (mut kept, mut anew, mut share) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..u64::from(args.decisions) {
            let full = state(args, args.decider.seed + number);
            let mut remembering = maker(settings, false);
            let mut fewer = full.clone();
            // The coflow that came last arrives, or the one that goes first is complete.
            let (before, after) = if event == "an arrival" {
                fewer.coflows.remove(&u64::from(args.coflows));
                decide(&mut remembering, 1, &fewer)?;
                (&fewer, &full)
            } else {
                let order = decide(&mut remembering, 1, &full)?.last.order;
                order.first().map(|first| fewer.coflows.remove(first));
                (&full, &fewer)
            };
            kept.push(decide(&mut remembering, 2, after)?.last_ms);
            let (nodes, of) = remembering.kept();
            share.push(100.0 * nodes as f64 / of as f64);
            let mut fresh = maker(settings, false);
            // Other sizes, so that what the maker keeps of these coflows is of no use to it.
            let mut strangers = before.clone();
            for coflow in strangers.coflows.values_mut() {
                coflow.left.values_mut().for_each(|bytes| *bytes += 1.0);
            }
            decide(&mut fresh, 1, &strangers)?;
            anew.push(decide(&mut fresh, 2, after)?.last_ms);
        }
        let more = format!(" ({:.0} % of nodes kept)", mean(&share));
        say(&format!("all rounds after {event}"), kept, &more);
        say("  the same with nothing kept", anew, "");
    }
    Ok(())
}

/// One of the decision makers: rounds without end, for a while. Prints rounds per second, and per second of the
/// processor's time.
fn work(args: &DecidingArgs, epoch: u64) -> Result<(), Failure> {
    let store = args.store.as_deref().map(bench_store).transpose()?;
    let settings = MakerSettings { rounds: u32::MAX, early: false, ..args.decider.maker() };
    let mut maker = Maker::new(format!("bench-{}", args.decider.seed), args.decider.seed, settings);
    maker.begin(epoch, &state(args, 1));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (start, processor, mut rounds) = (Instant::now(), thread_cpu_secs(), 0);
    while start.elapsed().as_secs() < u64::from(args.seconds) {
        // A maker first proposes an order, which no server takes here.
        let Step::Share(tally) = maker.step() else { continue };
        rounds = tally.rounds();
        let tallies = match &store {
            Some(store) => runtime.block_on(store.share(epoch, maker.name(), &tally))?.unwrap_or_default(),
            None => vec![tally],
        };
        maker.totals(&tallies);
    }
    let per = |secs: f64| f64::from(rounds) / secs;
    println!("{} {}", per(start.elapsed().as_secs_f64()), per(thread_cpu_secs() - processor));
    Ok(())
}

fn bench_store(url: &str) -> Result<RedisStore, Failure> {
    RedisStore::new(url, "weir-bench:").map_err(|error| Failure::Input(format!("--store {url}: {error}")))
}

/// Rounds per second of so many processes together, and the same per second of each one's processor time.
fn rounds_per_second(args: &DecidingArgs, makers: u64) -> Result<[f64; 2], Failure> {
    let mut epoch = 1;
    if let Some(url) = &args.store {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let report = Report { server: "bench".to_owned(), complete: true, ..Report::default() };
        epoch = runtime.block_on(bench_store(url)?.report(&report))?.unwrap_or(epoch);
    }
    let start = |seed: u64| {
        let mut command = own_command()?;
        command.args(["bench", "deciding", "--worker-epoch", &epoch.to_string()]);
        command.args(["--coflows", &args.coflows.to_string(), "--sites", &args.sites.to_string()]);
        command.args(["--depth", &args.decider.depth.to_string()]);
        command.args(["--breadth", &args.decider.breadth.to_string()]);
        command.args(["--seconds", &args.seconds.to_string(), "--seed", &seed.to_string()]);
        command.args(args.store.iter().flat_map(|url| ["--store", url]));
        OwnChild::start(command.stdin(Stdio::null()).stdout(Stdio::piped()))
    };
    // All are started before one is waited for, so that they run at the same time.
    let processes = (1..=makers).map(start).collect::<Result<Vec<_>, _>>()?;
    let mut sums = [0.0; 2];
    for mut process in processes {
        let said = process.read_to_end()?;
        let mut rates = said.split_whitespace().map_while(|rate| rate.parse::<f64>().ok());
        for sum in &mut sums {
            *sum += rates.next().ok_or_else(|| anyhow::anyhow!("a decision maker failed"))?;
        }
    }
    Ok(sums)
}

pub(crate) fn deciding(args: &DecidingArgs) -> Result<(), Failure> {
    if let Some(epoch) = args.worker_epoch {
        return work(args, epoch);
    }
    println!(
        "{} coflows between {} sites, orders of {} out of {}; {} decisions",
        args.coflows, args.sites, args.decider.depth, args.decider.breadth, args.decisions
    );
    time_decisions(args)?;
    time_events(args)?;
    let (one, two) = (rounds_per_second(args, 1)?, rounds_per_second(args, 2)?);
    let how = if args.store.is_some() { "tallies shared over Redis" } else { "nothing shared" };
    for (of, (one, two)) in ["", " of processor time"].into_iter().zip(one.into_iter().zip(two)) {
        let times = two / one;
        println!("rounds per second{of}, {how}: {one:.0} by one, {two:.0} by two ({times:.2} times)");
    }
    Ok(())
}
