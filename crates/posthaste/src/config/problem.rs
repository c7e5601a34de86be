//! Errors of the configuration, with their source.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// A file, a variable or a flag.
    pub source: String,
    /// Begins with the key, if there is one.
    pub reason: String,
    /// Whether a flag is wrong, which is a usage error.
    pub is_wrong_use: bool,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.source, self.reason)
    }
}

/// All mistakes of a configuration, one per line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// At least one.
    pub problems: Vec<ConfigProblem>,
}

impl ConfigError {
    /// Whether a flag is wrong.
    pub fn is_wrong_use(&self) -> bool {
        self.problems.iter().any(|problem| problem.is_wrong_use)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(out, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
