//! The admission queue: its rules one by one, and its invariants over random sequences of events.

mod crashes;
mod desk;
mod failures;
mod fairness;
mod launches;
mod leavers;
mod outlook;
mod random;
mod reload;
mod seeded;
mod slots;
mod turns;
mod waits;
