//! Where a tagger does not start it says why, and leaves nothing.

use std::io::Write;

use anyhow::{Result, anyhow, ensure};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use weir_ebpf::{Config, ConfigError, TagError, Tagger, loaded};

use crate::hosts::{SENDER, on_two_hosts, thresholds};

fn config() -> Config {
    Config::new(thresholds(&[1000]))
}

#[test]
fn without_privileges_it_says_so_and_does_nothing() {
    on_two_hosts("no privileges", |hosts| {
        let before = loaded();
        let without = hosts.at(SENDER, || -> Result<_> {
            let held = capabilities(None)?;
            set_capabilities(None, CapabilitySets { effective: CapabilitySet::empty(), ..held })?;
            let result = Tagger::attach("eth0", &config());
            set_capabilities(None, held)?;
            Ok(result)
        })??;
        ensure!(matches!(without, Err(TagError::NoRights)), "{without:?}");
        ensure!(loaded() == before);
        Ok(())
    });
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    on_two_hosts("no interface", |hosts| {
        for name in ["eth7", "", "a-name-that-no-interface-can-have", "eth\0"] {
            let result = hosts.at(SENDER, || Tagger::attach(name, &config()))?;
            ensure!(
                matches!(&result, Err(TagError::NoInterface { name: said }) if said == name),
                "{result:?}"
            );
        }
        Ok(())
    });
}

#[test]
fn a_second_tagger_on_an_interface_is_refused_until_the_first_goes() {
    on_two_hosts("two taggers", |hosts| {
        let first = hosts.tagger(&config())?;
        let second = hosts.at(SENDER, || Tagger::attach("eth0", &config()))?;
        ensure!(matches!(second, Err(TagError::Taken { .. })), "{second:?}");
        drop(first);
        hosts.tagger(&config())?;
        Ok(())
    });
}

/// Of many that start at once one is attached.
#[test]
fn taggers_that_start_at_once_see_each_other() {
    on_two_hosts("at once", |hosts| {
        let attach = || hosts.at(SENDER, || Tagger::attach("eth0", &config()));
        let results: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|_| scope.spawn(attach)).collect();
            all.into_iter().map(|one| one.join().map_err(|_| anyhow!("panicked"))).collect()
        });
        let mut attached = 0;
        for result in &results {
            match result.as_ref().map_err(|error| anyhow!("{error}"))?.as_ref() {
                Ok(Ok(_)) => attached += 1,
                Ok(Err(TagError::Taken { .. })) => {}
                other => return Err(anyhow!("{other:?}")),
            }
        }
        ensure!(attached == 1, "{attached} of 4");
        Ok(())
    });
}

/// Needs no rights: it is refused before anything is done.
#[test]
fn settings_that_make_no_sense_are_refused_first() {
    let config = Config { best: 9, ..config() };
    let result = Tagger::attach("eth0", &config);
    let _ = std::io::stdout().flush();
    assert!(
        matches!(result, Err(TagError::Config(ConfigError::Levels { levels: 2, best: 9 }))),
        "{result:?}"
    );
}
