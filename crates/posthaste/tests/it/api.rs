//! The HTTP API, asked over the network as a program would, with a real store and a real receiver behind it.
//!
//! Each test runs on SQLite and on PostgreSQL (`on_each_store!`): what a caller sees does not tell which one it is.
//! Every answer that these tests see is held against openapi.json (`running` asks, `schema` checks).

/// Makes two tests of each function, one for each store. In parentheses is what `tokio::test` is told.
macro_rules! on_each_store {
    ($($name:ident $(($($how:tt)*))?;)*) => {
        mod on_sqlite {
            $(#[tokio::test $(($($how)*))?]
            async fn $name() {
                super::$name(super::StoreKind::Sqlite).await;
            })*
        }

        mod on_postgres {
            $(#[tokio::test $(($($how)*))?]
            async fn $name() {
                super::$name(super::StoreKind::Postgres).await;
            })*
        }
    };
}

mod acts;
mod audit;
mod audited;
mod batches;
mod browser;
mod client_certificates;
mod crowd;
mod destinations;
mod docs;
mod edit;
mod explorer;
mod failure_groups;
mod figures;
mod fuzz;
mod jobs;
mod limits;
mod lists;
mod nul;
mod openapi;
mod pages;
mod policies;
mod private_receivers;
mod probes;
mod providers;
mod responses;
mod retention;
mod retry_operations;
mod roles;
mod running;
mod s3;
mod saved_views;
mod schema;
mod secrets;
mod sends;
mod series;
mod signing_secret;
mod simulation;
mod stream;
mod tenants;
mod timeouts;
pub(crate) mod tokens;
mod wrong_addresses;
mod wrong_input;
mod wrong_keys;
mod wrong_policies;
mod wrong_requests;
