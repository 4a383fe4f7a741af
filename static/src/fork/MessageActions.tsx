// Button beside a message that began a turn: edit it, and send it in a fork.

import { Icon } from "../components/Icon";
import { currentLive } from "../state/currentSession";
import type { UserRow } from "../state/rows";
import { openFork } from "./openFork";

export function MessageActions({ row: { begins, text, attachments } }: { row: UserRow }) {
  // Before the first event is nothing to fork from.
  if (!currentLive.value || begins === undefined || begins < 2) return null;
  const edit = () => openFork({ at: begins - 1, message: text, hasFiles: attachments.length > 0 });
  return (
    <button type="button" class="icon-button edit-message" aria-label="Edit and resend" title="Edit and resend in a fork" onClick={edit}>
      <Icon name="pencil" />
    </button>
  );
}
