//! The measurements that come along, by name.

use super::{Measurements, WanReadError};

/// An excerpt of published measurements; `data/wan/README.md` says where it is from and what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excerpt {
    /// `skyplane-gcp5`: five regions of Google Cloud, each pair measured alone; four snapshots, not to be pooled.
    SkyplaneGcp5,
    /// `wanify-aws8`: eight regions of AWS, all pairs at once; its snapshots are samples of one distribution.
    WanifyAws8,
}

/// There are no measurements of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown bandwidths `{0}`; known: skyplane-gcp5, wanify-aws8")]
pub struct UnknownExcerpt(String);

impl std::str::FromStr for Excerpt {
    type Err = UnknownExcerpt;

    fn from_str(name: &str) -> Result<Excerpt, UnknownExcerpt> {
        match name {
            "skyplane-gcp5" => Ok(Excerpt::SkyplaneGcp5),
            "wanify-aws8" => Ok(Excerpt::WanifyAws8),
            other => Err(UnknownExcerpt(other.to_owned())),
        }
    }
}

impl Excerpt {
    /// Reads the measurements, which are compiled in.
    ///
    /// # Errors
    /// Only if the table that is compiled in is malformed; tests read it.
    pub fn read(self) -> Result<Measurements, WanReadError> {
        let text = match self {
            Excerpt::SkyplaneGcp5 => include_str!("../../../../data/wan/skyplane-gcp5.csv"),
            Excerpt::WanifyAws8 => include_str!("../../../../data/wan/wanify-aws8.csv"),
        };
        Measurements::read(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_have_the_grids_that_their_readme_tells_of() {
        let grids = |name: &str| name.parse::<Excerpt>().expect("a name").read().expect("a table").grids(&[]);
        let sizes: Vec<usize> = grids("skyplane-gcp5").iter().map(|grid| grid.regions.len()).collect();
        assert_eq!(sizes, [5, 5, 5, 4]);
        let runs = grids("wanify-aws8");
        assert_eq!((runs.len(), runs[0].regions.len()), (86, 8));
        assert!("skyplane".parse::<Excerpt>().is_err());
    }
}
