//! placeholder

pub mod chain;
