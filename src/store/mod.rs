//! The only code that speaks SQL: one file per table, its rows' whole life on one screen.
//!
//! Each function is one statement or one transaction, says which rows change, and repeats in its WHERE clause what it expects
//! of them; zero rows is an answer, not an error. No decision is made here that `protocol` could make.

pub mod pool;

pub mod statement;

pub mod migrations;

#[allow(missing_docs, unreachable_pub)]
pub mod schema;

pub mod lanes;

pub mod submissions;

pub mod outbox;

pub mod attempts;

pub mod results;

pub mod dead_letters;

pub mod instances;

pub mod overdue;

pub mod lost;

pub mod retention;

pub mod tokens;

pub mod reports;

pub mod gauges;

use diesel::result::DatabaseErrorKind;

pub use pool::{Connection, Pool};

/// Why the store did not do it, by what follows from it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// PostgreSQL did not answer, or refused for a reason of its own. Nothing is known to have happened; try again later.
    #[error("PostgreSQL is unavailable: {0}")]
    Unavailable(String),
    /// The rows break a rule of the schema: the same again will fail again.
    #[error("PostgreSQL refused the rows: {0}")]
    Refused(String),
}

impl From<diesel::result::Error> for StoreError {
    fn from(error: diesel::result::Error) -> Self {
        use diesel::result::Error;
        match &error {
            Error::DatabaseError(
                DatabaseErrorKind::UniqueViolation
                | DatabaseErrorKind::ForeignKeyViolation
                | DatabaseErrorKind::NotNullViolation
                | DatabaseErrorKind::CheckViolation
                | DatabaseErrorKind::RestrictViolation
                | DatabaseErrorKind::ExclusionViolation,
                information,
            ) => {
                let constraint = information.constraint_name().unwrap_or("a constraint");
                StoreError::Refused(format!("{} ({constraint})", information.message()))
            }
            Error::SerializationError(_) | Error::DeserializationError(_) | Error::QueryBuilderError(_) => {
                StoreError::Refused(error.to_string())
            }
            // Lost connections, timeouts, deadlocks, read-only primaries, a server that shuts down: whatever the text says,
            // the transaction did not happen as far as anyone can know, and a later try may succeed.
            _ => StoreError::Unavailable(error.to_string()),
        }
    }
}

/// What a store function gives back.
pub type StoreResult<T> = Result<T, StoreError>;
