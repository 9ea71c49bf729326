//! Tests of requests as agents send them, of streams as a client reads them, and of hostile JSON.

mod hostile;
mod reader;
mod requests;
mod streams;
