//! The fields of a policy as a form. An empty field leaves the value to the wider scopes; beside each label stands where the value
//! comes from.

use posthaste_core::policy::Sources;
use serde_json::{Map, Value, json};

use self::Kind::{Choice, Durations, Flag, Jitter, Number, Numbers, Text};
use super::visitor::Fields;

/// How a field is written in a form.
#[derive(Clone, Copy)]
enum Kind {
    /// As it is in JSON: a duration or a name.
    Text,
    Number,
    /// Durations separated by commas.
    Durations,
    /// Numbers separated by commas, or `none`.
    Numbers,
    Jitter,
    Flag,
    Choice(&'static [&'static str]),
}

struct Spec {
    name: &'static str,
    label: &'static str,
    kind: Kind,
    help: &'static str,
}

const fn spec(name: &'static str, label: &'static str, kind: Kind, help: &'static str) -> Spec {
    Spec { name, label, kind, help }
}

const WHEN: &[Spec] = &[
    spec(
        "preset",
        "Preset",
        Choice(&["story", "notify", "zgw", "shumoul-email", "webhook", "standard"]),
        "fills every field",
    ),
    spec(
        "strategy",
        "Strategy",
        Choice(&["none", "fixed", "exponential", "linear", "immediate", "schedule"]),
        "how the waits grow",
    ),
    spec("maxAttempts", "Attempts", Number, "the first included"),
    spec("jitter", "Jitter", Jitter, "10 %, plus 30s, full, equal, decorrelated, none"),
    spec("schedule", "Waits between attempts", Durations, "5s, 5m, 1h; past the end the last one repeats"),
    spec("initialDelay", "First wait", Text, "500ms, 30s, 5m, 4h, 1d"),
    spec("multiplier", "Factor", Number, "of exponential"),
    spec("maximumDelay", "Longest wait", Text, "of exponential and linear"),
];
const LIMITS: &[Spec] = &[
    spec("timeout", "Timeout", Text, "of one try"),
    spec("maxAge", "Give up after", Text, "if nothing says so: twice the window"),
    spec("honourRetryAfter", "Heed Retry-After", Flag, ""),
    spec("maximumRetryAfter", "Longest Retry-After", Text, ""),
    spec("deadLetter", "Dead letter at the end", Flag, ""),
];
const QUICK: &[Spec] = &[
    spec("quick.tries", "Repeats", Number, "the first try not counted"),
    spec("quick.delay", "First quick wait", Text, ""),
    spec("quick.backoff", "Quick waits grow", Choice(&["constant", "linear", "exponential"]), ""),
    spec("quick.jitter", "Random quick waits", Flag, ""),
    spec("quick.retryAfter", "Heed Retry-After within", Flag, ""),
    spec("quick.statusCodes", "Further status codes", Numbers, "404, 409"),
    spec("quick.when", "Repeat", Choice(&["any", "unsent"]), ""),
    spec("quick.limit", "Quick waits in all", Text, ""),
];
const RETRY_ON: &[Spec] = &[
    spec("retryOn.temporary", "Temporary", Flag, "5xx, 425"),
    spec("retryOn.timeout", "Timeout", Flag, "408, too slow"),
    spec("retryOn.rateLimit", "Rate limit", Flag, "429"),
    spec("retryOn.networkFailure", "Network failure", Flag, "refused, DNS, TLS"),
    spec("retryOn.quotaExceeded", "Quota exceeded", Flag, "402"),
    spec("retryOn.unknown", "Unknown", Flag, "404, 409, 421, 423, 3xx"),
    spec("retryOn.permanent", "Permanent", Flag, "the other 4xx"),
    spec("retryOn.authenticationFailure", "Authentication", Flag, "401, 403"),
    spec("retryOn.invalidRecipient", "Invalid recipient", Flag, ""),
];
const GROUPS: [(&str, &[Spec]); 4] =
    [("When", WHEN), ("Limits", LIMITS), ("Quick tries, inside one attempt", QUICK), ("Retry on", RETRY_ON)];

/// Fields that belong together.
pub(super) struct Group {
    pub(super) legend: &'static str,
    pub(super) fields: Vec<Field>,
}

/// One field as it is shown.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) label: &'static str,
    pub(super) help: &'static str,
    /// What the scope says or what was typed; empty if nothing.
    pub(super) value: String,
    /// What counts as long as the field is empty.
    pub(super) otherwise: String,
    pub(super) from: String,
    /// The values to choose from, with their words. Empty for a text.
    pub(super) choices: Vec<(&'static str, &'static str)>,
    pub(super) error: Option<String>,
}

/// What a form shows.
pub(super) struct Shown<'a> {
    /// What the scope says.
    pub(super) kept: &'a Value,
    /// What the form says.
    pub(super) typed: &'a Value,
    /// What results from what the scope says.
    pub(super) effective: &'a Value,
    pub(super) sources: &'a Sources,
    /// The path of a field with a mistake, and what is wrong.
    pub(super) mistake: Option<(String, String)>,
}

impl Shown<'_> {
    pub(super) fn groups(&self) -> Vec<Group> {
        let group = |(legend, specs): &(&'static str, &'static [Spec])| Group {
            legend,
            fields: specs.iter().map(|spec| self.field(spec)).collect(),
        };
        GROUPS.iter().map(group).collect()
    }

    fn field(&self, spec: &Spec) -> Field {
        let (kept, typed) = (at(self.kept, spec.name), at(self.typed, spec.name));
        let from = match (kept == typed, kept) {
            (false, _) => "changed here",
            (true, Some(_)) => "here",
            (true, None) => self.sources.get(spec.name).map_or("", String::as_str),
        };
        // What counts without what the scope says is not known here.
        let otherwise =
            at(self.effective, spec.name).filter(|_| kept.is_none()).map(text).unwrap_or_default();
        let choices = spec.kind.choices();
        let words =
            choices.iter().find(|(value, _)| *value == otherwise).map(|(_, words)| (*words).to_owned());
        Field {
            name: spec.name,
            label: spec.label,
            help: spec.help,
            value: typed.map(text).unwrap_or_default(),
            otherwise: words.unwrap_or(otherwise),
            from: from.to_owned(),
            choices,
            error: self.error(spec.name),
        }
    }

    /// The mistake, if it is that of this field, of a part of it, or of its group and it is the first one there.
    fn error(&self, name: &str) -> Option<String> {
        let (path, what) = self.mistake.as_ref()?;
        let is_part = path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        let first = specs().map(|spec| spec.name).find(|name| name.starts_with(&format!("{path}.")));
        (is_part || first == Some(name)).then(|| what.clone())
    }

    /// What the form changes, in words.
    pub(super) fn changes(&self) -> Vec<String> {
        let change = |spec: &Spec| {
            let (kept, typed) = (at(self.kept, spec.name), at(self.typed, spec.name));
            if kept == typed {
                return None;
            }
            let was = kept.or_else(|| at(self.effective, spec.name)).map(text);
            let was = was.map_or_else(|| "was not set".to_owned(), |was| format!("was {was}"));
            let now = typed.map_or_else(|| "left to the wider scopes".to_owned(), text);
            Some(format!("{}: {now}, {was}", spec.label))
        };
        specs().filter_map(change).collect()
    }
}

fn specs() -> impl Iterator<Item = &'static Spec> {
    GROUPS.iter().flat_map(|(_, specs)| specs.iter())
}

/// The policy that a form says. What is wrong in it is for the API to say.
pub(super) fn read(form: &Fields) -> Value {
    let mut policy = Map::new();
    for spec in specs() {
        let Some(typed) = form.get(spec.name) else { continue };
        let value = spec.kind.value(typed);
        match spec.name.split_once('.') {
            None => drop(policy.insert(spec.name.to_owned(), value)),
            Some((parent, name)) => {
                let parent = policy.entry(parent).or_insert_with(|| json!({}));
                parent[name] = value;
            }
        }
    }
    Value::Object(policy)
}

impl Kind {
    /// What was typed as JSON.
    fn value(self, typed: &str) -> Value {
        let parts = || typed.split(',').map(str::trim).filter(|part| !part.is_empty());
        match self {
            Text | Choice(_) => typed.into(),
            Number => number(typed),
            Durations => parts().map(Value::from).collect(),
            Numbers if typed == "none" => json!([]),
            Numbers => parts().map(number).collect(),
            Flag => match typed {
                "true" => true.into(),
                "false" => false.into(),
                other => other.into(),
            },
            Jitter => jitter(typed),
        }
    }

    fn choices(self) -> Vec<(&'static str, &'static str)> {
        match self {
            Text | Number | Durations | Numbers | Jitter => vec![],
            Flag => vec![("true", "yes"), ("false", "no")],
            Choice(names) => names.iter().map(|name| (*name, *name)).collect(),
        }
    }
}

fn number(text: &str) -> Value {
    match text.parse::<Value>() {
        Ok(number @ Value::Number(_)) => number,
        _ => text.into(),
    }
}

/// `10 %` and `plus 30s`, else the name of a jitter.
fn jitter(typed: &str) -> Value {
    if let Some(percent) = typed.strip_suffix('%') {
        return json!({"percent": number(percent.trim())});
    }
    let plus = typed.strip_prefix("plus ").or_else(|| typed.strip_prefix('+'));
    plus.map_or_else(|| typed.into(), |plus| json!({"plus": plus.trim()}))
}

/// The value at a name such as `quick.tries`.
fn at<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    name.split('.').try_fold(value, |value, part| value.get(part))
}

/// A value as it is typed.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) if list.is_empty() => "none".to_owned(),
        Value::Array(list) => list.iter().map(text).collect::<Vec<_>>().join(", "),
        Value::Object(_) => match (value.get("percent"), value.get("plus")) {
            (Some(percent), _) => format!("{percent} %"),
            (None, Some(plus)) => format!("plus {}", text(plus)),
            (None, None) => value.to_string(),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::policy::{PolicyLayer, Preset};

    fn form(policy: &Value) -> Fields {
        let typed = specs().filter_map(|spec| Some((spec.name.to_owned(), text(at(policy, spec.name)?))));
        Fields::of(typed.collect())
    }

    #[test]
    fn every_field_of_a_policy_is_in_the_form_and_comes_back() {
        let presets = ["story", "notify", "zgw", "shumoul-email", "webhook", "standard"];
        let mut policies: Vec<Value> = presets
            .iter()
            .map(|name| serde_json::to_value(Preset::from_name(name).unwrap().policy()).unwrap())
            .collect();
        policies.push(
            json!({"preset": "notify", "jitter": {"plus": "30s"}, "quick": {"statusCodes": [404, 409]}}),
        );
        policies.push(json!({"jitter": "full", "schedule": ["1m", "5m"]}));
        policies.push(json!({}));
        for policy in policies {
            assert_eq!(read(&form(&policy)), policy);
            PolicyLayer::from_json(&policy).unwrap();
        }
    }

    #[test]
    fn a_mistake_stands_at_its_field() {
        let sources = Sources::new();
        let none = json!({});
        let at_field = |path: &str| {
            let mistake = Some((path.to_owned(), "no".to_owned()));
            let shown = Shown { kept: &none, typed: &none, effective: &none, sources: &sources, mistake };
            let groups = shown.groups();
            let fields = groups.iter().flat_map(|group| &group.fields);
            fields.filter(|field| field.error.is_some()).map(|field| field.name).collect::<Vec<_>>()
        };
        assert_eq!(at_field("quick.delay"), ["quick.delay"]);
        assert_eq!(at_field("schedule.1"), ["schedule"]);
        assert_eq!(at_field("jitter.percent"), ["jitter"]);
        assert_eq!(at_field("quick"), ["quick.tries"]);
        assert_eq!(at_field("max"), Vec::<&str>::new());
    }

    #[test]
    fn what_changes_is_said_with_what_it_was() {
        let (kept, typed) =
            (json!({"maxAttempts": 5, "timeout": "5s"}), json!({"maxAttempts": 6, "jitter": "full"}));
        let effective = json!({"maxAttempts": 5, "timeout": "5s", "jitter": {"percent": 10}});
        let sources = Sources::from([("jitter".to_owned(), "preset notify".to_owned())]);
        let shown =
            Shown { kept: &kept, typed: &typed, effective: &effective, sources: &sources, mistake: None };
        assert_eq!(
            shown.changes(),
            ["Attempts: 6, was 5", "Jitter: full, was 10 %", "Timeout: left to the wider scopes, was 5s"]
        );
    }
}
