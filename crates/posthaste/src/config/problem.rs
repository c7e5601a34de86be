//! What is wrong with settings, and where it was said.

use std::fmt;

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where it was said: a file, a variable or a flag.
    pub place: String,
    /// What is wrong, in words that begin with the key where there is one.
    pub reason: String,
    /// Whether the command line said it, so that the program was called in a way that cannot be meant.
    pub is_wrong_use: bool,
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.place, self.reason)
    }
}

/// Settings that cannot be used, with every mistake that was found, one a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The mistakes; at least one.
    pub problems: Vec<Problem>,
}

impl ConfigError {
    /// Whether a flag is among what is wrong.
    pub fn is_wrong_use(&self) -> bool {
        self.problems.iter().any(|problem| problem.is_wrong_use)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            write!(out, "{end}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
