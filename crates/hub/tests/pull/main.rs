//! Pulling from a hub that lets its clients down in every way.
#![forbid(unsafe_code)]

mod damage;
mod files;
mod refused;
mod world;
