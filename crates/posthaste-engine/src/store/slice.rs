//! How a slice of the seam is declared, and how calls of it become values.
//!
//! A slice is declared once, by `slice!`. Each line of it is a kind (`read` or `write`), the name of the call as a value,
//! and the method without what all of them share: `async fn method(&self, ..) -> Result<..>`. From this list come the trait
//! that stores implement and, with the feature `testing`, a [`Call`] and an [`Answer`] for each method. A store that only
//! forwards implements [`Forward`] and has every slice by that; the random comparison makes and applies calls.
//!
//! To add a method: a line in its slice, the method in `model_store`, `sqlite` and `postgres`, a promise in `conformance`,
//! and an arm in the generator of the random comparison. To add a slice: a file with `slice!`, and a line each in `Store`
//! and in `sum!` at the end of this file.

/// Declares a slice of the store.
macro_rules! slice {
    (
        $(#[$about:meta])*
        pub trait $slice:ident {
            $(
                $(#[$doc:meta])*
                $kind:ident $name:ident: fn $method:ident($($argument:ident: $type:ty),* $(,)?) -> $answer:ty;
            )*
        }
    ) => {
        $(#[$about])*
        #[async_trait::async_trait]
        pub trait $slice: Send + Sync {
            $(
                $(#[$doc])*
                async fn $method(&self, $($argument: $type),*) -> $crate::store::Result<$answer>;
            )*
        }

        /// A call of a method of this slice.
        #[cfg(feature = "testing")]
        #[allow(missing_docs, clippy::large_enum_variant)]
        #[derive(Debug, Clone)]
        pub enum Call {
            $($name { $($argument: $type),* },)*
        }

        /// What a method of this slice returned.
        #[cfg(feature = "testing")]
        #[allow(missing_docs, clippy::large_enum_variant)]
        #[derive(Debug, Clone, PartialEq)]
        pub enum Answer {
            $($name($answer),)*
        }

        #[cfg(feature = "testing")]
        impl Call {
            /// The name of the method.
            pub const fn method(&self) -> &'static str {
                match self {
                    $(Self::$name { .. } => stringify!($method),)*
                }
            }

            /// Whether it may change what is kept.
            pub const fn kind(&self) -> $crate::store::slice::Kind {
                match self {
                    $(Self::$name { .. } => slice!(@kind $kind),)*
                }
            }

            /// Calls the method.
            pub async fn apply(self, store: &dyn $slice) -> $crate::store::Result<Answer> {
                match self {
                    $(Self::$name { $($argument),* } => store.$method($($argument),*).await.map(Answer::$name),)*
                }
            }
        }

        #[cfg(feature = "testing")]
        #[async_trait::async_trait]
        impl<F: $crate::store::slice::Forward> $slice for F {
            $(
                async fn $method(&self, $($argument: $type),*) -> $crate::store::Result<$answer> {
                    match self.forward(Call::$name { $($argument),* }.into()).await? {
                        $crate::store::slice::Answer::$slice(Answer::$name(answer)) => Ok(answer),
                        other => unreachable!("{} was answered by {other:?}", stringify!($method)),
                    }
                }
            )*
        }
    };
    (@kind read) => { $crate::store::slice::Kind::Read };
    (@kind write) => { $crate::store::slice::Kind::Write };
}
pub(crate) use slice;

/// Whether a call may change what is kept.
#[cfg(feature = "testing")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only looks.
    Read,
    /// It may change something.
    Write,
}

/// A store that hands every call on.
#[cfg(feature = "testing")]
#[async_trait::async_trait]
pub trait Forward: Send + Sync {
    /// Does the call. The answer is that of the same method.
    async fn forward(&self, call: Call) -> super::Result<Answer>;
}

#[cfg(feature = "testing")]
macro_rules! sum {
    ($($slice:ident in $module:ident),* $(,)?) => {
        /// A call of any method of a store.
        #[allow(missing_docs, clippy::large_enum_variant)]
        #[derive(Debug, Clone)]
        pub enum Call {
            $($slice(super::$module::Call),)*
        }

        /// What any method of a store returned.
        #[allow(missing_docs, clippy::large_enum_variant)]
        #[derive(Debug, Clone, PartialEq)]
        pub enum Answer {
            $($slice(super::$module::Answer),)*
        }

        impl Call {
            /// The name of the method.
            pub const fn method(&self) -> &'static str {
                match self {
                    $(Self::$slice(call) => call.method(),)*
                }
            }

            /// Whether it may change what is kept.
            pub const fn kind(&self) -> Kind {
                match self {
                    $(Self::$slice(call) => call.kind(),)*
                }
            }

            /// Calls the method.
            pub async fn apply(self, store: &dyn super::Store) -> super::Result<Answer> {
                match self {
                    $(Self::$slice(call) => call.apply(store).await.map(Answer::$slice),)*
                }
            }
        }

        $(
            impl From<super::$module::Call> for Call {
                fn from(call: super::$module::Call) -> Self {
                    Self::$slice(call)
                }
            }
        )*
    };
}

#[cfg(feature = "testing")]
sum! {
    Queue in queue,
    Waking in waking,
    Nodes in nodes,
    Acts in acts,
    StoredSettings in settings,
    KeyUses in key_uses,
    Records in records,
    Jobs in jobs,
    Retention in retention,
    Series in series,
    Groups in groups,
    Operations in operations,
    Destinations in destinations,
    Inbound in inbound,
    Reads in reads,
}
