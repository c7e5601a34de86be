//! The header `webhook-signature`, by Standard Webhooks: HMAC-SHA256 of id, time and body, with each secret that signs.

use aws_lc_rs::hmac;
use http::header::HeaderValue;
use posthaste_core::signature::{SigningSecret, header_value, signed_head};
use posthaste_engine::channel::Delivery;

/// The signatures of exactly these bytes, as they are sent; none if nothing signs.
pub(super) fn signature(delivery: &Delivery, id: &str, seconds: i64, body: &[u8]) -> Option<HeaderValue> {
    let secrets = delivery.signer.as_deref()?;
    let head = signed_head(id, seconds);
    let sign = |secret: &SigningSecret| {
        let mut hmac = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret.bytes()));
        hmac.update(head.as_bytes());
        hmac.update(body);
        hmac.sign()
    };
    let value = header_value(secrets.signing(delivery.at).map(sign));
    Some(HeaderValue::try_from(value).expect("base64 is visible ASCII"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use posthaste_core::channel::Channel;
    use posthaste_core::flow::FlowKey;
    use posthaste_core::id::NotificationId;
    use posthaste_core::notification::{Body, Content, Notification};
    use posthaste_core::provider::Route;
    use posthaste_core::signature::SigningSecrets;
    use posthaste_core::time::Timestamp;
    use posthaste_engine::vault::Opened;

    use super::*;

    fn delivery(secrets: Option<SigningSecrets>, at: Timestamp) -> Delivery {
        let flow = FlowKey {
            tenant: "acme".parse().unwrap(),
            channel: Channel::Webhook,
            destination: "http://127.0.0.1:9".into(),
        };
        let content = Content::of(Body::Text(String::new()));
        let notification =
            Notification::new(NotificationId::new(at, 0), flow, "http://127.0.0.1:9/".to_owned(), content);
        Delivery {
            notification: Arc::new(notification),
            route: Route::Direct,
            attempt: 1,
            at,
            timeout: Duration::from_secs(1),
            signer: secrets.map(Arc::new),
            opened: Opened::default(),
        }
    }

    /// The values of the specification's own example.
    #[test]
    fn the_example_of_the_specification_is_signed_as_there() {
        let secret = SigningSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let now = Timestamp::from_millis(1_614_265_330_000);
        let body = br#"{"test": 2432232314}"#;
        let one = delivery(Some(SigningSecrets::first(secret, now)), now);
        let value = signature(&one, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body).unwrap();
        assert_eq!(value, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn the_older_secret_signs_until_its_end_by_the_time_of_the_try() {
        let secret = |byte| SigningSecret::new(&[byte; 32]).unwrap();
        let begin = Timestamp::from_millis(1_790_000_000_000);
        let secrets = SigningSecrets::first(secret(1), begin).rotated(secret(2), begin);
        for (hours, count) in [(0, 2), (23, 2), (24, 1)] {
            let now = begin.later(Duration::from_hours(hours));
            let value = signature(&delivery(Some(secrets.clone()), now), "ntf_1", 1, b"x").unwrap();
            assert_eq!(value.to_str().unwrap().split(' ').count(), count, "{hours}");
        }
        assert_eq!(signature(&delivery(None, begin), "ntf_1", 1, b"x"), None);
    }
}
