//! Runs: all policies of a simulation, and sweeps over parameters, on all cores.

use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use crate::engine::{Engine, Throttles};
use crate::error::Error;
use crate::model::{Simulation, Variant};
use crate::report::{PolicyReport, Report};

impl Simulation {
    /// Runs every policy with the seed of the simulation, on all cores.
    ///
    /// # Errors
    /// The description is wrong (the first problem), or a run exceeded a limit.
    pub fn run(&self) -> Result<Report, Error> {
        self.run_with_progress(&|_| {})
    }

    /// The same, and calls `progress` from time to time with the share that is done, from 0 to 1.
    ///
    /// # Errors
    /// The description is wrong (the first problem), or a run exceeded a limit.
    pub fn run_with_progress(&self, progress: &(dyn Fn(f64) + Sync)) -> Result<Report, Error> {
        if let Some(problem) = self.problems().into_iter().next() {
            return Err(problem);
        }
        // The progress of all runs in thousandths.
        const WHOLE: f64 = 1000.0;
        let done = AtomicU64::new(0);
        let total = WHOLE * self.policies.len() as f64;
        let run = |variant: &Variant| {
            let own = AtomicU64::new(0);
            self.run_variant(variant, &|share| {
                let now = (share * WHOLE) as u64;
                let added = now - own.swap(now, Ordering::Relaxed);
                let sum = done.fetch_add(added, Ordering::Relaxed) + added;
                progress(sum as f64 / total);
            })
        };
        let policies: Result<Vec<_>, Error> = self.policies.par_iter().map(run).collect();
        progress(1.0);
        Ok(Report::new(self, self.seed, policies?))
    }

    fn run_variant(
        &self,
        variant: &Variant,
        progress: &dyn Fn(f64),
    ) -> Result<PolicyReport, Error> {
        let throttles = Throttles::new(self, variant)
            .map_err(|problem| Error::Throttle { policy: variant.name.clone(), problem })?;
        let metrics = Engine::new(self, variant, &throttles, self.seed).run(progress)?;
        Ok(PolicyReport::new(self, &variant.name, &metrics))
    }
}

/// Runs simulations on all cores, and returns their reports in the same order.
///
/// A sweep is a list of simulations that differ in one parameter or seed:
///
/// ```
/// use redial_core::s;
/// use redial_sim::{CallPolicy, Distribution, Load, Service, Simulation, Variant, sweep};
/// use redial_core::ms;
///
/// let with_rate = |calls_per_second| {
///     let mut simulation = Simulation::new("rate", s(5));
///     simulation.clients.load = Load::Poisson { calls_per_second };
///     simulation.services.push(Service::new("backend", Distribution::Fixed(ms(5))));
///     simulation.policies.push(Variant::new("default", CallPolicy::default()));
///     simulation
/// };
/// let reports = sweep(&[10.0, 100.0, 1000.0].map(with_rate))?;
/// assert!(reports[2].policies[0].offered_per_second > 900.0);
/// # Ok::<(), redial_sim::Error>(())
/// ```
///
/// # Errors
/// The first simulation that is wrong or exceeds a limit.
pub fn sweep(simulations: &[Simulation]) -> Result<Vec<Report>, Error> {
    sweep_with_progress(simulations, &|_| {})
}

/// The same as [`sweep`], and calls `progress` after each simulation with the share that is done.
///
/// # Errors
/// The first simulation that is wrong or exceeds a limit.
pub fn sweep_with_progress(
    simulations: &[Simulation],
    progress: &(dyn Fn(f64) + Sync),
) -> Result<Vec<Report>, Error> {
    let done = AtomicU64::new(0);
    let run = |simulation: &Simulation| {
        let report = simulation.run();
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        progress(done as f64 / simulations.len() as f64);
        report
    };
    simulations.par_iter().map(run).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use redial_core::{ms, s};

    use super::*;
    use crate::{CallPolicy, Distribution, Service};

    #[test]
    fn sweep_reports_progress_after_each_simulation() {
        let mut simulation = Simulation::new("short", s(1));
        simulation.services.push(Service::new("backend", Distribution::Fixed(ms(5))));
        simulation.policies.push(Variant::new("default", CallPolicy::default()));
        let shares = Mutex::new(Vec::new());
        let add = |share| shares.lock().expect("no panic").push(share);
        sweep_with_progress(&vec![simulation; 4], &add).expect("they run");
        let mut shares = shares.into_inner().expect("no panic");
        shares.sort_by(f64::total_cmp);
        assert_eq!(shares, [0.25, 0.5, 0.75, 1.0]);
    }
}
