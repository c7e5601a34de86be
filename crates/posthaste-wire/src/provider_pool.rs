//! The channel of a pool: hands each try to the provider that its route names.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use posthaste_core::reply::{Fault, Reply};
use posthaste_engine::channel::{Channel, Delivery};

/// The providers of one channel, by name.
#[derive(Default)]
pub struct ProviderPool {
    providers: BTreeMap<Arc<str>, Box<dyn Channel>>,
}

impl ProviderPool {
    pub fn add(&mut self, name: Arc<str>, provider: impl Channel) {
        self.providers.insert(name, Box::new(provider));
    }
}

#[async_trait]
impl Channel for ProviderPool {
    async fn send(&self, delivery: Delivery) -> Reply {
        let name = delivery.route.provider().map(|provider| provider.name.clone());
        match name.as_ref().and_then(|name| self.providers.get(name)) {
            Some(provider) => provider.send(delivery).await,
            None => Reply::fault(Fault::NoProvider, "the route names no provider of this channel"),
        }
    }
}
