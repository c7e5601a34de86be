//! Every address of the API, in one table: what is answered, counted and described is what stands here.

use http::Method;

use super::problem::{Problem, Result};

macro_rules! routes {
    ($($name:ident $method:ident $path:literal $access:ident $doc:literal;)*) => {
        /// One address with one method.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Route {
            $(#[doc = $doc] $name,)*
        }

        impl Route {
            /// Every route.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its method, its path as openapi.json writes it, and who may call it.
            pub const fn shown(self) -> (Method, &'static str, Access) {
                match self {
                    $(Self::$name => (Method::$method, $path, Access::$access),)*
                }
            }
        }
    };
}

/// Who may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Anyone.
    Open,
    /// Anyone, unless `metrics.require_key` is set.
    Metrics,
    /// Whoever has a key.
    Key,
}

routes! {
    Send POST "/v1/notifications" Key "Takes in one notification.";
    SendBatch POST "/v1/notifications/batch" Key "Takes in many.";
    ListNotifications GET "/v1/notifications" Key "Lists notifications.";
    ListFailed GET "/v1/notifications/failed" Key "Lists what failed, in the shape of S3.";
    GetNotification GET "/v1/notifications/{id}" Key "One notification with its history.";
    Retry POST "/v1/notifications/{id}/retry" Key "Opens a new generation.";
    RetryNow POST "/v1/notifications/{id}/retry-now" Key "Makes a scheduled retry due.";
    Cancel POST "/v1/notifications/{id}/cancel" Key "Calls it off.";
    RetryQueue GET "/v1/retry-queue" Key "Lists what waits for a retry.";
    ListDeadLetters GET "/v1/dead-letters" Key "Lists dead letters.";
    GetDeadLetter GET "/v1/dead-letters/{id}" Key "One dead letter with its payload.";
    Requeue POST "/v1/dead-letters/{id}/requeue" Key "Sends it on its way again.";
    Discard POST "/v1/dead-letters/{id}/discard" Key "Gives it up.";
    Restore POST "/v1/dead-letters/{id}/restore" Key "Brings a discarded one back.";
    Stats GET "/v1/stats" Key "The kept counters.";
    Audit GET "/v1/audit" Key "Who did what.";
    ListPolicies GET "/v1/policies" Key "Lists the scopes that have a policy.";
    PreviewPolicy POST "/v1/policies/preview" Key "When a policy would make its attempts.";
    GetPolicy GET "/v1/policies/{scope}" Key "The policy of a scope.";
    PutPolicy PUT "/v1/policies/{scope}" Key "Replaces the policy of a scope.";
    DeletePolicy DELETE "/v1/policies/{scope}" Key "Removes what the API said at a scope.";
    ListKeys GET "/v1/keys" Key "Lists API keys.";
    CreateKey POST "/v1/keys" Key "Makes an API key.";
    RevokeKey DELETE "/v1/keys/{id}" Key "Revokes an API key.";
    ListNodes GET "/v1/nodes" Key "Who is alive and what each holds.";
    Health GET "/healthz" Open "Whether the process lives.";
    Ready GET "/readyz" Open "Whether it takes notifications.";
    Metrics GET "/metrics" Metrics "Figures for Prometheus.";
    OpenApi GET "/openapi.json" Open "This description.";
}

impl Route {
    /// The route of a request, and what stood in its path for `{..}`.
    pub fn find<'p>(method: &Method, path: &'p str) -> Result<(Self, &'p str)> {
        // HEAD is answered as GET; the connection leaves the body out.
        let method = if method == Method::HEAD { &Method::GET } else { method };
        let mut allowed: Vec<String> = vec![];
        for route in Self::ALL {
            let (its, template, _) = route.shown();
            let Some(inner) = matches(template, path) else { continue };
            // `/v1/notifications/failed` is never the notification with the id `failed`.
            if !inner.is_empty() && Self::is_fixed(path) {
                continue;
            }
            if its == method {
                return Ok((*route, inner));
            }
            allowed.push(its.to_string());
            if its == Method::GET {
                allowed.push(Method::HEAD.to_string());
            }
        }
        if allowed.is_empty() {
            let detail = "there is nothing at this address; openapi.json lists what there is";
            return Err(Problem::not_found(detail));
        }
        Err(Problem::wrong_method(&allowed.join(", ")))
    }

    fn is_fixed(path: &str) -> bool {
        Self::ALL.iter().any(|route| route.shown().1 == path)
    }
}

/// Whether a path is of this form, and what stands in place of the braces.
fn matches<'p>(template: &str, path: &'p str) -> Option<&'p str> {
    let Some((before, rest)) = template.split_once('{') else { return (template == path).then_some("") };
    let after = rest.split_once('}').map_or("", |(_, after)| after);
    let inner = path.strip_prefix(before)?.strip_suffix(after)?;
    (!inner.is_empty() && !inner.contains('/')).then_some(inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::problem::Kind;

    #[test]
    fn each_route_is_found_by_its_own_path() {
        for route in Route::ALL {
            let (method, path, _) = route.shown();
            let path = path.replace("{id}", "x1").replace("{scope}", "x1");
            let (found, inner) = Route::find(&method, &path).unwrap();
            assert_eq!(found, *route, "{path}");
            assert_eq!(inner, if path.contains("x1") { "x1" } else { "" });
        }
    }

    #[test]
    fn what_is_not_there_is_not_found_and_a_wrong_method_is_told_the_right_ones() {
        for nothing in ["/", "/v1", "/v1/notifications/", "/v1/notifications/a/b", "/v2/notifications", ""] {
            assert_eq!(Route::find(&Method::GET, nothing).unwrap_err().kind, Kind::NotFound, "{nothing}");
        }
        let wrong = Route::find(&Method::DELETE, "/v1/notifications").unwrap_err();
        assert_eq!(wrong.kind, Kind::MethodNotAllowed);
        assert!(wrong.detail.ends_with("POST, GET, HEAD"), "{}", wrong.detail);
        let wrong = Route::find(&Method::POST, "/v1/notifications/failed").unwrap_err();
        assert!(wrong.detail.ends_with("are GET, HEAD"), "{}", wrong.detail);
    }
}
