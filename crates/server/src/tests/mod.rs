//! Tests of all APIs together.

mod sessions;
