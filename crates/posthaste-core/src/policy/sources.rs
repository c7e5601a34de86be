//! Where each field of a resolved policy comes from: a scope or a preset.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Policy, PolicyLayer, PolicySet, Preset, Scope};
use crate::channel::Channel;
use crate::strategy::Strategy;

/// The source of what neither a scope nor a preset sets.
const BUILT_IN: &str = "built-in";

/// The source of each field by its name in JSON; a field inside another one has a dotted name such as `quick.tries`. A source is
/// a scope, `preset x` or `built-in`. The source of `preset` is the narrowest scope that names one.
pub type Sources = BTreeMap<String, String>;

impl PolicySet {
    /// The sources of [`PolicySet::resolve`], without a message.
    pub fn sources(&self, channel: Channel, tenant: &str, template: Option<&str>) -> Sources {
        let named = template.map(str::to_owned);
        let own = || Some(tenant.to_owned());
        let scopes = [
            Some(Scope::Global),
            Some(Scope::Channel(channel)),
            Some(Scope::Tenant(tenant.to_owned())),
            named.clone().map(|name| Scope::Template { tenant: None, name }),
            named.map(|name| Scope::Template { tenant: own(), name }),
        ];
        let layers = self.layers(channel, tenant, template);
        let given = scopes.into_iter().zip(layers).filter_map(|(scope, layer)| Some((scope?, layer?)));
        let policy = self.resolve(channel, tenant, template, None);
        sources(Preset::built_in(channel), given, &policy)
    }
}

/// The sources of a policy that these layers were resolved into.
fn sources<'a>(
    base: Preset,
    layers: impl IntoIterator<Item = (Scope, &'a PolicyLayer)>,
    policy: &Policy,
) -> Sources {
    let mut preset = (base, BUILT_IN.to_owned());
    // What scopes set since the last preset, which hides what was set before it.
    let mut set = Sources::new();
    for (scope, layer) in layers {
        let scope = scope.to_string();
        if let Some(named) = layer.preset {
            preset = (named, scope.clone());
            set.clear();
        }
        for field in fields(layer) {
            set.insert(field, scope.clone());
        }
        // A schedule also sets the strategy and the number of attempts.
        if layer.schedule.is_some() && layer.own_strategy() == Some(Strategy::Schedule) {
            set.insert("strategy".to_owned(), scope.clone());
            set.insert("maxAttempts".to_owned(), scope);
        }
    }
    let (preset, chosen_by) = preset;
    let source = |field: &str| match set.get(field) {
        Some(scope) => scope.clone(),
        None if field == "maxAge" => BUILT_IN.to_owned(),
        // A cap of the preset gives way to a longer initial delay.
        None if field == "maximumDelay"
            && policy.backoff.maximum_delay != preset.policy().backoff.maximum_delay =>
        {
            set.get("initialDelay").cloned().unwrap_or_else(|| format!("preset {}", preset.name()))
        }
        None => format!("preset {}", preset.name()),
    };
    let mut sources: Sources = fields(&policy.to_layer())
        .into_iter()
        .map(|field| {
            let source = source(&field);
            (field, source)
        })
        .collect();
    sources.insert("preset".to_owned(), chosen_by);
    sources
}

/// The names of the fields that a layer sets, but for its preset.
fn fields(layer: &PolicyLayer) -> Vec<String> {
    let mut names = vec![];
    let Ok(Value::Object(object)) = serde_json::to_value(layer) else { return names };
    for (name, value) in object {
        match (name.as_str(), value) {
            ("preset", _) => {}
            // They are merged field by field.
            ("quick" | "retryOn", Value::Object(inner)) => {
                names.extend(inner.keys().map(|inner| format!("{name}.{inner}")));
            }
            _ => names.push(name),
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Source;
    use serde_json::json;

    fn set(layers: &[(&str, Value)]) -> PolicySet {
        let mut set = PolicySet::new();
        for (scope, layer) in layers {
            let layer = PolicyLayer::from_json(layer).unwrap();
            set.put(Source::Api, scope.parse().unwrap(), layer).unwrap();
        }
        set
    }

    fn of(set: &PolicySet) -> Sources {
        set.sources(Channel::Webhook, "acme", Some("welcome"))
    }

    #[test]
    fn without_layers_everything_comes_from_the_built_in_preset() {
        let sources = of(&set(&[]));
        for (field, source) in &sources {
            let wanted = if field == "preset" || field == "maxAge" { "built-in" } else { "preset webhook" };
            assert_eq!(source, wanted, "{field}");
        }
        assert!(sources.contains_key("quick.tries") && sources.contains_key("retryOn.permanent"));
    }

    #[test]
    fn a_field_comes_from_the_narrowest_scope_that_sets_it_after_the_last_preset() {
        let sources = of(&set(&[
            ("global", json!({"timeout": "5s", "maxAge": "2d", "retryOn": {"permanent": true}})),
            ("channel:webhook", json!({"preset": "notify", "jitter": "full"})),
            ("tenant:acme", json!({"quick": {"tries": 1}, "jitter": "none"})),
            ("tenant:other", json!({"maxAttempts": 9})),
            ("template:welcome", json!({"schedule": ["1m", "5m"]})),
            ("template:acme/welcome", json!({"retryOn": {"timeout": false}})),
        ]));
        for (field, source) in [
            ("preset", "channel:webhook"),
            ("timeout", "preset notify"),
            ("maxAge", "built-in"),
            ("retryOn.permanent", "preset notify"),
            ("retryOn.timeout", "template:acme/welcome"),
            ("jitter", "tenant:acme"),
            ("quick.tries", "tenant:acme"),
            ("quick.delay", "preset notify"),
            ("schedule", "template:welcome"),
            ("strategy", "template:welcome"),
            ("maxAttempts", "template:welcome"),
        ] {
            assert_eq!(sources[field], source, "{field}");
        }
    }

    #[test]
    fn the_cap_of_delays_comes_from_what_decided_it() {
        let cap = |layer: Value| of(&set(&[("global", layer)])).get("maximumDelay").cloned();
        let notify = |mut layer: Value| {
            layer["preset"] = json!("notify");
            cap(layer)
        };
        assert_eq!(notify(json!({})).as_deref(), Some("preset notify"));
        assert_eq!(notify(json!({"initialDelay": "1m"})).as_deref(), Some("preset notify"));
        assert_eq!(notify(json!({"initialDelay": "1h"})).as_deref(), Some("global"));
        assert_eq!(notify(json!({"maximumDelay": "1h"})).as_deref(), Some("global"));
        assert_eq!(notify(json!({"strategy": "linear"})), None);
    }

    /// Each source explains its value: the scope says it, or the preset has it.
    #[test]
    fn every_value_is_that_of_its_source() {
        let layers = [
            ("global", json!({"preset": "story", "timeout": "7s", "maxAge": "3d"})),
            ("channel:webhook", json!({"initialDelay": "2m", "quick": {"tries": 2, "delay": "1s"}})),
            (
                "tenant:acme",
                json!({"strategy": "exponential", "multiplier": 3, "retryOn": {"unknown": false}}),
            ),
            ("template:welcome", json!({"maxAttempts": 4, "deadLetter": false})),
        ];
        let set = set(&layers);
        let found = |value: &Value, field: &str| {
            field.split('.').try_fold(value.clone(), |value, part| value.get(part).cloned())
        };
        let policy = set.resolve(Channel::Webhook, "acme", Some("welcome"), None);
        let effective = serde_json::to_value(&policy).unwrap();
        let mut seen = vec![];
        for (field, source) in of(&set).iter().filter(|(field, _)| *field != "preset") {
            let said = match source.split_once(' ') {
                Some((_, preset)) => {
                    assert_eq!(preset, "story", "{field}");
                    serde_json::to_value(Preset::Story.policy()).unwrap()
                }
                None => layers.iter().find(|(scope, _)| scope == source).unwrap().1.clone(),
            };
            let said =
                PolicyLayer::from_json(&said).map(|layer| serde_json::to_value(layer).unwrap()).unwrap();
            assert_eq!(found(&effective, field), found(&said, field), "{field} from {source}");
            seen.push(source.clone());
        }
        for (scope, _) in &layers {
            assert!(seen.iter().any(|source| source == scope), "{scope} {seen:?}");
        }
    }
}
