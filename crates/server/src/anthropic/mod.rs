//! The Messages API as pure functions, JSON in and JSON out.
//!
//! [`request`] makes a [`kapitsa::turn::TurnRequest`] of a body; [`events`] makes a stream of [`kapitsa::turn::TurnEvent`]s,
//! [`whole`] one message of the same events; [`error`] and [`models`] have the other forms.

pub(crate) mod error;
pub(crate) mod events;
mod messages;
pub(crate) mod models;
mod place;
pub(crate) mod request;
pub(crate) mod routes;
#[cfg(test)]
mod tests;
pub(crate) mod whole;
