//! Errors of the script language itself; what a command meets is printed as output instead.

/// Why a script could not be run at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// The text has no form: the line says where.
    #[error("{file}:{line}: {problem}")]
    Malformed {
        /// Name of the file as it was given.
        file: String,
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The file's header asks for a backend that this build does not have.
    #[error("backend `{backend}` is not in this build, which has {available}")]
    Backend {
        /// The name asked for.
        backend: String,
        /// The names this build knows, separated by commas.
        available: String,
    },
    /// The directory for a script's files could not be made.
    #[error("a directory for the script's files could not be made")]
    Directory {
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}
