"""Verifies the deliveries in cases.json with public libraries and the sample of the page."""

import json
from datetime import datetime, timedelta

import sample
import standardwebhooks.webhooks
import svix.webhooks

WRONG = 6 * 60  # seconds: a minute more than the tolerance


class Clock(datetime):
    """A clock that may be wrong."""

    off = 0

    @classmethod
    def now(cls, tz=None):
        return datetime.now(tz) + timedelta(seconds=cls.off)


# Each library asks the clock by a name of its own.
for library in (standardwebhooks.webhooks, svix.webhooks):
    if hasattr(library, "datetime"):
        library.datetime = Clock
real = sample.time.time
sample.time = type("time", (), {"time": staticmethod(lambda: real() + Clock.off)})


def by_library(webhook):
    def verify(secret, headers, body):
        try:
            webhook(secret).verify(body, headers, json_parse=False)
        except TypeError:
            webhook(secret).verify(body, headers)
        return True

    def verified(secret, headers, body):
        try:
            return verify(secret, headers, body)
        except json.JSONDecodeError:
            # Some parse the body once it is verified.
            return True
        except (standardwebhooks.webhooks.WebhookVerificationError, svix.webhooks.WebhookVerificationError):
            return False

    return verified


def by_sample(secret, headers, body):
    seen, worked = set(), []
    answers = [sample.receive(secret, headers, body, seen, worked.append) for _ in range(2)]
    assert answers in ([204, 204], [401, 401]), answers
    assert worked == ([body] if answers[0] == 204 else []), worked
    return answers[0] == 204


cases = json.load(open("cases.json"))
assert len(cases) == 10, len(cases)
verifiers = {
    "standardwebhooks": by_library(standardwebhooks.webhooks.Webhook),
    "svix": by_library(svix.webhooks.Webhook),
    "sample": by_sample,
}
for name, is_genuine in verifiers.items():
    for case in cases:
        headers, body = case["headers"], case["body"].encode()
        about = f"{name}: {case['name']}"
        for secret in case["fits"]:
            assert is_genuine(secret, headers, body), about
            for changed in (f"{case['body']} ", case["body"][:-1] + "?", f"x{case['body']}"):
                assert not is_genuine(secret, headers, changed.encode()), f"{about}: a changed body"
            for header in ("webhook-id", "webhook-timestamp"):
                changed = {**headers, header: headers[header][:-1] + ("1" if headers[header][-1] != "1" else "2")}
                assert not is_genuine(secret, changed, body), f"{about}: another {header}"
            for header in ("webhook-id", "webhook-timestamp", "webhook-signature"):
                rest = {key: value for key, value in headers.items() if key != header}
                assert not is_genuine(secret, rest, body), f"{about}: no {header}"
            for off, genuine in ((WRONG, False), (-WRONG, False), (WRONG - 120, True), (120 - WRONG, True)):
                Clock.off = off
                assert is_genuine(secret, headers, body) == genuine, f"{about}: a clock that is {off} s wrong"
                Clock.off = 0
        for secret in case["others"]:
            assert not is_genuine(secret, headers, body), f"{about}: another secret"
