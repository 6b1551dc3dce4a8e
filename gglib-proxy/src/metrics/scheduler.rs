//! Metrics of engines and queues, made from a snapshot when they are asked for.

use gglib_core::admission::Snapshot;
use gglib_core::model::ModelName;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use super::labels::{InState, Model, OfModel};
use super::table;

/// What `snapshot` says; that there is none is said too.
pub(super) fn registry(snapshot: Option<&Snapshot>) -> Registry {
    let mut registry = Registry::default();
    table::SCHEDULER_UP.register(&mut registry, ConstGauge::new(i64::from(snapshot.is_some())));
    if let Some(snapshot) = snapshot {
        engines(snapshot, &mut registry);
        queues(snapshot, &mut registry);
        let totals = snapshot.totals;
        table::LOADS.register(&mut registry, ConstCounter::new(totals.loads));
        table::FAILED_LOADS.register(&mut registry, ConstCounter::new(totals.failed_loads));
        table::SWAPS.register(&mut registry, ConstCounter::new(totals.swaps));
        table::CRASHES.register(&mut registry, ConstCounter::new(totals.crashes));
    }
    registry
}

fn engines(snapshot: &Snapshot, registry: &mut Registry) {
    let (engines, in_flight) = (Family::<InState, Gauge>::default(), Family::<OfModel, Gauge>::default());
    for engine in &snapshot.engines {
        let (model, state) = (Model(engine.model.clone()), engine.state.as_str());
        engines.get_or_create(&InState { model, state }).inc();
        in_flight.get_or_create(&of(&engine.model)).inc_by(count(engine.in_flight));
    }
    table::ENGINES.register(registry, engines);
    table::ENGINE_LEASES.register(registry, in_flight);
}

fn queues(snapshot: &Snapshot, registry: &mut Registry) {
    let waiting = Family::<OfModel, Gauge>::default();
    let oldest = Family::<OfModel, Gauge<f64, std::sync::atomic::AtomicU64>>::default();
    for queue in &snapshot.queue {
        waiting.get_or_create(&of(&queue.model)).set(count(queue.waiting));
        oldest.get_or_create(&of(&queue.model)).set(queue.oldest_wait.as_secs_f64());
    }
    table::WAITING.register(registry, waiting);
    table::OLDEST_WAIT.register(registry, oldest);
}

fn of(model: &ModelName) -> OfModel {
    OfModel { model: Some(Model(model.clone())) }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
