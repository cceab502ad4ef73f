//! Runs: all policies of a simulation, and sweeps over parameters, on all cores.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use crate::engine::{Engine, Throttles};
use crate::error::Error;
use crate::model::{Simulation, Variant};
use crate::report::{PolicyReport, SimulationReport};

/// Watches a run: it receives the share that is done, from 0 to 1, and can stop the run, which then
/// fails with [`Error::Stopped`]. It is called from the threads of the run, some milliseconds apart.
pub type Watch<'w> = dyn Fn(f64) -> ControlFlow<()> + Sync + 'w;

impl Simulation {
    /// Runs every policy with the seed of the simulation, on all cores.
    ///
    /// # Errors
    /// The description is wrong (the first problem), or a run exceeded a limit.
    pub fn run(&self) -> Result<SimulationReport, Error> {
        self.run_with_progress(&|_| {})
    }

    /// The same, and calls `progress` from time to time with the share that is done, from 0 to 1.
    ///
    /// # Errors
    /// The description is wrong (the first problem), or a run exceeded a limit.
    pub fn run_with_progress(
        &self,
        progress: &(dyn Fn(f64) + Sync),
    ) -> Result<SimulationReport, Error> {
        self.run_watched(&|share| {
            progress(share);
            ControlFlow::Continue(())
        })
    }

    /// The same, and `watch` can stop the run.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use redial_sim::{Error, scenarios};
    ///
    /// let simulation = scenarios::by_name("layers").ok_or("unknown")?.simulation();
    /// let stopped = simulation.run_watched(&|_share| ControlFlow::Break(()));
    /// assert_eq!(stopped, Err(Error::Stopped));
    /// # Ok::<(), &str>(())
    /// ```
    ///
    /// # Errors
    /// The description is wrong (the first problem), a run exceeded a limit, or `watch` stopped it.
    pub fn run_watched(&self, watch: &Watch<'_>) -> Result<SimulationReport, Error> {
        if let Some(problem) = self.problems().into_iter().next() {
            return Err(problem);
        }
        let shares = Shares::new(self.policies.len());
        let run = |variant: &Variant| {
            let own = AtomicU64::new(0);
            self.run_variant(variant, &|share| watch(shares.add(&own, share)))
        };
        let policies: Result<Vec<_>, Error> = self.policies.par_iter().map(run).collect();
        let policies = policies?;
        if watch(1.0).is_break() {
            return Err(Error::Stopped);
        }
        Ok(SimulationReport::new(self, self.seed, policies))
    }

    fn run_variant(
        &self,
        variant: &Variant,
        watch: &dyn Fn(f64) -> ControlFlow<()>,
    ) -> Result<PolicyReport, Error> {
        let throttles = Throttles::new(self, variant)
            .map_err(|problem| Error::Throttle { policy: variant.name.clone(), problem })?;
        let metrics = Engine::new(self, variant, &throttles, self.seed).run(watch)?;
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
pub fn sweep(simulations: &[Simulation]) -> Result<Vec<SimulationReport>, Error> {
    sweep_watched(simulations, &|_| ControlFlow::Continue(()))
}

/// The same as [`sweep`], and `watch` can stop it.
pub(crate) fn sweep_watched(
    simulations: &[Simulation],
    watch: &Watch<'_>,
) -> Result<Vec<SimulationReport>, Error> {
    let shares = Shares::new(simulations.len());
    let run = |simulation: &Simulation| {
        let own = AtomicU64::new(0);
        simulation.run_watched(&|share| watch(shares.add(&own, share)))
    };
    simulations.par_iter().map(run).collect()
}

/// The progress of all runs.
struct Shares {
    /// The sum of the shares of the runs, in thousandths.
    done: AtomicU64,
    runs: usize,
}

impl Shares {
    const WHOLE: f64 = 1000.0;

    const fn new(runs: usize) -> Shares {
        Shares { done: AtomicU64::new(0), runs }
    }

    /// The share of all runs that is done, now that a run is at this share.
    fn add(&self, own: &AtomicU64, share: f64) -> f64 {
        let now = (share * Shares::WHOLE) as u64;
        let added = now.saturating_sub(own.fetch_max(now, Ordering::Relaxed));
        let sum = self.done.fetch_add(added, Ordering::Relaxed) + added;
        sum as f64 / (Shares::WHOLE * self.runs as f64)
    }
}

/// The same as [`sweep`], and calls `progress` after each simulation with the share that is done.
///
/// # Errors
/// The first simulation that is wrong or exceeds a limit.
pub fn sweep_with_progress(
    simulations: &[Simulation],
    progress: &(dyn Fn(f64) + Sync),
) -> Result<Vec<SimulationReport>, Error> {
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
    use std::sync::atomic::AtomicUsize;

    use redial_core::{ms, s};

    use super::*;
    use crate::plan::{Assumptions, plan_watched};
    use crate::{CallPolicy, Distribution, Load, Service};

    /// A run of a hundred thousand events in a single interval.
    fn long() -> Simulation {
        let mut simulation = Simulation::new("long", s(100));
        simulation.interval = Some(s(100));
        simulation.clients.load = Load::Even { calls_per_second: 1000.0 };
        simulation.services.push(Service::new("backend", Distribution::Fixed(ms(5))));
        simulation.policies.push(Variant::new("default", CallPolicy::default()));
        simulation
    }

    #[test]
    fn run_is_watched_between_the_ends_of_intervals() {
        let shares = AtomicUsize::new(0);
        let watch = |share: f64| {
            if share > 0.0 && share < 1.0 {
                shares.fetch_add(1, Ordering::Relaxed);
            }
            ControlFlow::Continue(())
        };
        let report = long().run_watched(&watch).expect("it runs");
        assert!(shares.load(Ordering::Relaxed) > 0);
        assert_eq!(Ok(report), long().run());
    }

    #[test]
    fn run_ends_when_its_watch_stops_it() {
        let stop = |share: f64| {
            if share > 0.0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        assert_eq!(long().run_watched(&stop), Err(Error::Stopped));
        let policy = CallPolicy::default();
        let plan = plan_watched("default", &policy, &Assumptions::default(), &stop);
        assert_eq!(plan, Err(Error::Stopped));
    }

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
