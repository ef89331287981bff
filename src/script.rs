//! x
mod arguments;
mod command;
mod error;
mod glob;
mod syntax;
pub use error::ScriptError;
