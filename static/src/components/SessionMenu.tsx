// What can be done with a session as a whole. The button is here; what it opens comes when it is pressed.

import { asked } from "../state/asked";
import type { Session } from "../wire/frame";
import { lazy } from "./lazy";
import { Popover } from "./Popover";

const SessionActs = lazy((later) => later.SessionActs);

export function SessionMenu({ session }: { session: Session }) {
  return (
    <Popover label={`What to do with “${session.title || "Untitled"}”`} icon="more">
      {(close) => (
        <SessionActs
          session={session}
          onChosen={(act) => {
            close();
            if (act) asked.value = { session, act };
          }}
        />
      )}
    </Popover>
  );
}
