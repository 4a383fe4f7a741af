// Menu button of a session. The menu loads when opened.

import { sessionDialog } from "../state/sessionDialog";
import type { Session } from "../wire/frame";
import { lazy } from "./lazy";
import { Popover } from "./Popover";

const SessionActs = lazy((later) => later.SessionActions);

export function SessionMenu({ session }: { session: Session }) {
  return (
    <Popover label={`Actions for “${session.title || "Untitled"}”`} icon="more">
      {(close) => (
        <SessionActs
          session={session}
          onChosen={(action) => {
            close();
            if (action) sessionDialog.value = { session, action };
          }}
        />
      )}
    </Popover>
  );
}
