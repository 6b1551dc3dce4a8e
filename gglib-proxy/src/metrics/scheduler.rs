//! Metrics of engines and queues, made from a snapshot when they are asked for.

use std::sync::atomic::AtomicU64;

use gglib_core::admission::Snapshot;
use gglib_core::memory::Memory;
use gglib_core::model::ModelName;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use super::labels::{InState, Model, OfModel, Takes};
use super::table;

/// What `snapshot` says; that there is none is said too.
pub(super) fn registry(snapshot: Option<&Snapshot>) -> Registry {
    let mut registry = Registry::default();
    table::SCHEDULER_UP.register(&mut registry, ConstGauge::new(i64::from(snapshot.is_some())));
    if let Some(snapshot) = snapshot {
        engines(snapshot, &mut registry);
        queues(snapshot, &mut registry);
        let totals = snapshot.totals;
        breakers(snapshot, &mut registry);
        loads(snapshot, &mut registry);
        table::FAILED_LOADS.register(&mut registry, ConstCounter::new(totals.failed_loads));
        table::CANCELLED_LOADS.register(&mut registry, ConstCounter::new(totals.cancelled_loads));
        table::SWAPS.register(&mut registry, ConstCounter::new(totals.swaps));
        table::EVICTIONS.register(&mut registry, ConstCounter::new(totals.evictions));
        table::RECYCLES.register(&mut registry, ConstCounter::new(totals.recycles));
        table::EXPIRED.register(&mut registry, ConstCounter::new(totals.expired));
        table::CRASHES.register(&mut registry, ConstCounter::new(totals.crashes));
    }
    registry
}

fn engines(snapshot: &Snapshot, registry: &mut Registry) {
    let (engines, in_flight) = (Family::<InState, Gauge>::default(), Family::<OfModel, Gauge>::default());
    let memory = Family::<Takes, Gauge>::default();
    for engine in &snapshot.engines {
        let (model, state) = (Model(engine.model.clone()), engine.state.as_str());
        engines.get_or_create(&InState { model, state }).inc();
        in_flight.get_or_create(&of(&engine.model)).inc_by(count(engine.in_flight));
        for (known_by, amount) in [("estimate", engine.estimated), ("measurement", engine.measured)] {
            let Some(Memory { ram, vram }) = amount else { continue };
            for (kind, bytes) in [("ram", ram), ("vram", vram)] {
                // Two engines of a model can be there while the first one stops.
                let takes = Takes { model: Model(engine.model.clone()), known_by, kind };
                memory.get_or_create(&takes).inc_by(i64::try_from(bytes).unwrap_or(i64::MAX));
            }
        }
    }
    table::ENGINES.register(registry, engines);
    table::ENGINE_LEASES.register(registry, in_flight);
    table::MEMORY.register(registry, memory);
}

fn breakers(snapshot: &Snapshot, registry: &mut Registry) {
    let breakers = Family::<InState, Gauge>::default();
    for breaker in &snapshot.breakers {
        let (model, state) = (Model(breaker.model.clone()), breaker.state.as_str());
        breakers.get_or_create(&InState { model, state }).set(1);
    }
    table::BREAKERS.register(registry, breakers);
}

fn loads(snapshot: &Snapshot, registry: &mut Registry) {
    let loads = Family::<OfModel, Counter>::default();
    let loading = Family::<OfModel, Counter<f64, AtomicU64>>::default();
    for known in &snapshot.models {
        loads.get_or_create(&of(&known.model)).inc_by(known.loads);
        loading.get_or_create(&of(&known.model)).inc_by(known.loading.as_secs_f64());
    }
    table::LOADS.register(registry, loads);
    table::LOADING.register(registry, loading);
}

fn queues(snapshot: &Snapshot, registry: &mut Registry) {
    let waiting = Family::<OfModel, Gauge>::default();
    let oldest = Family::<OfModel, Gauge<f64, AtomicU64>>::default();
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
