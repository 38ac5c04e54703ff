//! What bytes cost that leave a region.
//!
//! A byte that a relay passes on leaves two regions and is paid for twice.

use super::{WanReadError, read_rows};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A price in USD per GB of 10^9 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct UsdPerGb(f64);

impl UsdPerGb {
    /// What so many bytes cost, in USD.
    pub fn usd(self, bytes: f64) -> f64 {
        self.0 * bytes / 1e9
    }
}

/// Prices of a network of regions: `[from][to]`.
pub type PriceGrid = Vec<Vec<UsdPerGb>>;

#[derive(Deserialize)]
struct Row {
    src_region: String,
    dst_region: String,
    usd_per_gb: f64,
}

/// Prices for ordered pairs of regions.
#[derive(Clone, Debug)]
pub struct EgressPrices {
    by_pair: BTreeMap<(String, String), UsdPerGb>,
}

impl EgressPrices {
    /// Those of `data/wan`: five regions of Google Cloud, about 2022.
    ///
    /// # Errors
    /// Only if the table that is compiled in is malformed; tests read it.
    pub fn included() -> Result<EgressPrices, WanReadError> {
        EgressPrices::parse(include_str!("../../../../data/wan/skyplane-gcp5-egress.csv"))
    }

    fn parse(text: &str) -> Result<EgressPrices, WanReadError> {
        let mut by_pair = BTreeMap::new();
        read_rows(text.as_bytes(), |line, row: Row| {
            if !(row.usd_per_gb.is_finite() && row.usd_per_gb >= 0.0) {
                let reason = format!("usd_per_gb is {}, not a number of at least 0", row.usd_per_gb);
                return Err(WanReadError::Malformed { line, reason });
            }
            by_pair.insert((row.src_region, row.dst_region), UsdPerGb(row.usd_per_gb));
            Ok(())
        })?;
        Ok(EgressPrices { by_pair })
    }

    /// The prices between all of these regions, 0 on the diagonal; `None` if one is not known.
    pub fn grid(&self, regions: &[String]) -> Option<PriceGrid> {
        let price = |from: &String, to: &String| match from == to {
            true => Some(UsdPerGb::default()),
            false => self.by_pair.get(&(from.clone(), to.clone())).copied(),
        };
        regions.iter().map(|from| regions.iter().map(|to| price(from, to)).collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wan::Excerpt;

    #[test]
    fn all_pairs_of_the_five_regions_have_a_price_and_those_of_other_clouds_have_none() {
        let prices = EgressPrices::included().unwrap();
        let grid = Excerpt::SkyplaneGcp5.read().unwrap().grid("2022-01-24", &[]).unwrap();
        // asia-east1, asia-northeast1, europe-west1, us-east1, us-west1.
        let found = prices.grid(&grid.regions).expect("prices");
        let cents = |from: usize, to: usize| found[from][to].usd(100e9);
        assert_eq!([cents(0, 0), cents(0, 1), cents(1, 2), cents(3, 4)], [0.0, 5.0, 8.0, 1.0]);
        assert_eq!(prices.grid(&["us-east-1".to_owned(), "us-west-1".to_owned()]), None);
    }

    #[test]
    fn a_price_below_0_is_refused_with_its_line() {
        let said = EgressPrices::parse("src_region,dst_region,usd_per_gb\na,b,0.1\nb,a,-1\n").unwrap_err();
        assert_eq!(said.to_string(), "line 3: usd_per_gb is -1, not a number of at least 0");
    }
}
