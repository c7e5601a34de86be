"""Uses the generated client as a program of a user would: URL, key and two addresses of a receiver are its arguments."""

import sys
import time
from datetime import datetime

from posthaste_client import AuthenticatedClient, Client
from posthaste_client.api.dead_letters import list_dead_letters, requeue
from posthaste_client.api.notifications import cancel, get_notification, list_notifications, send, send_batch
from posthaste_client.api.policies import get_policy, preview_policy, put_policy
from posthaste_client.api.server import ready
from posthaste_client.models import (
    Accepted, Batch, BatchAnswer, Channel, DeadLetterPage, EffectivePolicy, JitterPercent, Metadata, NewNotification,
    NotificationDetail, NotificationPage, Policy, Preview, Priority, Problem, ProblemCode, ReadinessStatus, State, Status,
    Strategy, WebhookHeaders,
)
from posthaste_client.types import UNSET

url, key, ok, refused = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=key, raise_on_unexpected_status=True)


def until(state, id):
    """The notification once it is in a state. A caller of the API can only ask again."""
    for _ in range(600):
        found = get_notification.sync(id, client=client)
        assert isinstance(found, NotificationDetail), found
        if found.state == state:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{id} did not become {state}: {found}")


# An answer without a key, and an enum.
assert ready.sync(client=Client(base_url=url)).status == ReadinessStatus.READY

# Send, twice with one key, and get.
policy = Policy(strategy=Strategy.FIXED, initial_delay="20ms", max_attempts=2, jitter=JitterPercent(percent=10))
new = NewNotification(
    channel=Channel.WEBHOOK, to=ok, body={"order": 4711}, priority=Priority.HIGH, event_key="order.shipped",
    headers=WebhookHeaders.from_dict({"x-shop": "north"}), metadata=Metadata.from_dict({"team": ["checkout"]}), policy=policy,
)
sent = send.sync(client=client, body=new, idempotency_key="once")
assert isinstance(sent, Accepted) and sent.status == Status.QUEUED, sent
assert isinstance(sent.created_at, datetime), sent
assert send.sync(client=client, body=new, idempotency_key="once") == sent
arrived = until(State.SUCCEEDED, sent.notification_id)
assert arrived.headers["x-shop"] == "north" and arrived.metadata["team"] == ["checkout"], arrived
assert arrived.policy.jitter == JitterPercent(percent=10) and arrived.body == {"order": 4711}, arrived
assert arrived.reason is None and arrived.attempts[0].status_code == 200, arrived

# A batch of which one is rejected with a problem.
wrong = NewNotification(channel=Channel.WEBHOOK, to="nowhere", body="x")
answer = send_batch.sync(client=client, body=Batch(notifications=[new, wrong, new]))
assert isinstance(answer, BatchAnswer), answer
assert [item.index for item in answer.accepted] == [0, 2], answer
assert answer.rejected[0].problem.code == ProblemCode.VALIDATION_FAILED, answer

# A list, page by page.
cursor, seen = UNSET, []
while cursor is not None:
    page = list_notifications.sync(client=client, limit=2, cursor=cursor)
    assert isinstance(page, NotificationPage), page
    seen += [one.notification_id for one in page.data]
    cursor = page.next_cursor
assert len(seen) == 3 and sent.notification_id in seen, seen

# A dead letter and its requeue, which has a body without fields that may be left out.
dead = send.sync(client=client, body=NewNotification(channel=Channel.WEBHOOK, to=refused, body=None))
until(State.DEADLETTER, dead.notification_id)
letters = list_dead_letters.sync(client=client)
assert isinstance(letters, DeadLetterPage) and len(letters.data) == 1, letters
assert requeue.sync(letters.data[0].id, client=client).attempt == 1

# Typed problems: with a pointer, with a state, without a key.
problem = send.sync(client=client, body=wrong)
assert isinstance(problem, Problem) and problem.pointer == "/to" and problem.state is UNSET, problem
problem = cancel.sync(sent.notification_id, client=client)
assert isinstance(problem, Problem) and problem.state == State.SUCCEEDED, problem
problem = list_notifications.sync(client=AuthenticatedClient(base_url=url, token="x"))
assert isinstance(problem, Problem) and problem.code == ProblemCode.UNAUTHORIZED, problem

# Policies.
shown = preview_policy.sync(client=client, body=policy)
assert isinstance(shown, Preview) and len(shown.attempts) == 2 and shown.window == "22ms", shown
put_policy.sync("channel:webhook", client=client, body=policy)
scoped = get_policy.sync("channel:webhook", client=client)
assert isinstance(scoped, EffectivePolicy) and scoped.effective.strategy == Strategy.FIXED, scoped
