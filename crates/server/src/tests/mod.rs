//! Tests of all APIs together.

mod sessions;
pub(crate) mod turns;
