//! What would result if a scope said something else.

use super::{Policy, PolicyLayer, PolicySet, Preset, Scope, Source, resolve};
use crate::channel::Channel;
use crate::fields::BadField;

/// A notification by what its policy depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub channel: Channel,
    /// Empty for one of no tenant that has a policy.
    pub tenant: String,
    pub template: Option<String>,
}

impl Scope {
    /// A notification that is in this scope and in no narrower one. `channel` counts if the scope names none.
    pub fn place(&self, channel: Option<Channel>) -> Place {
        let place = |tenant: &str, template: Option<&String>| Place {
            channel: channel.unwrap_or(Channel::Webhook),
            tenant: tenant.to_owned(),
            template: template.cloned(),
        };
        match self {
            Self::Global => place("", None),
            Self::Channel(own) => Place { channel: *own, ..place("", None) },
            Self::Tenant(own) => place(own, None),
            Self::Template { tenant, name } => place(tenant.as_deref().unwrap_or(""), Some(name)),
        }
    }
}

impl PolicySet {
    /// The policy at a place of this scope if the API said `layer` there. A layer that could not be put is refused.
    pub fn with_layer(
        &self,
        scope: &Scope,
        layer: &PolicyLayer,
        channel: Option<Channel>,
    ) -> Result<Policy, BadField> {
        layer.check_for(scope)?;
        self.check_new(scope, layer)?;
        let file = self.layer_of(Source::File, scope);
        let joined = file.map_or_else(|| layer.clone(), |file| layer.over(file));
        joined.check_for(scope)?;
        let at = scope.place(channel);
        let mut layers = self.layers(at.channel, &at.tenant, at.template.as_deref());
        let own = match scope {
            Scope::Global => 0,
            Scope::Channel(_) => 1,
            Scope::Tenant(_) => 2,
            Scope::Template { tenant: None, .. } => 3,
            Scope::Template { tenant: Some(_), .. } => 4,
        };
        layers[own] = Some(&joined);
        Ok(resolve(Preset::built_in(at.channel), layers.into_iter().flatten()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn layer(value: &Value) -> PolicyLayer {
        PolicyLayer::from_json(value).unwrap()
    }

    /// A trial is what a put would come to, at every scope.
    #[test]
    fn a_trial_is_what_a_put_would_come_to() {
        let mut set = PolicySet::new();
        for (source, scope, said) in [
            (Source::File, "global", json!({"timeout": "4s"})),
            (Source::Api, "channel:email", json!({"maxAttempts": 7, "jitter": "none"})),
            (Source::File, "tenant:acme", json!({"initialDelay": "2m"})),
            (Source::Api, "tenant:acme", json!({"maxAttempts": 3})),
            (Source::Api, "template:acme/welcome", json!({"maxAttempts": 2})),
        ] {
            set.put(source, scope.parse().unwrap(), layer(&said)).unwrap();
        }
        let said = layer(&json!({"multiplier": 3, "maxAttempts": 4}));
        for scope in ["global", "channel:email", "tenant:acme", "template:welcome", "template:acme/welcome"] {
            let scope: Scope = scope.parse().unwrap();
            let at = scope.place(Some(Channel::Email));
            let now = set.resolve(at.channel, &at.tenant, at.template.as_deref(), None);
            let trial = set.with_layer(&scope, &said, Some(Channel::Email)).unwrap();
            let mut after = set.clone();
            after.put(Source::Api, scope.clone(), said.clone()).unwrap();
            assert_eq!(trial, after.resolve(at.channel, &at.tenant, at.template.as_deref(), None), "{scope}");
            assert_ne!(trial, now, "{scope}");
        }
    }

    #[test]
    fn a_trial_is_refused_as_a_put_would_be() {
        let set = PolicySet::new();
        for (scope, said, field) in [
            ("template:x", json!({"maxAttempts": 6}), "maxAttempts"),
            ("tenant:acme", json!({"timeout": "2m"}), "timeout"),
        ] {
            let refused = set.with_layer(&scope.parse().unwrap(), &layer(&said), None).unwrap_err();
            assert_eq!(refused.field, field);
        }
    }
}
