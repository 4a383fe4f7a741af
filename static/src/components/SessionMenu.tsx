// What can be done with a session as a whole. The button is here; what it opens comes when it is pressed.

import { useState } from "preact/hooks";
import type { Session } from "../wire/frame";
import { lazy } from "./lazy";
import { Popover } from "./Popover";

/** What was chosen and has to be asked, done or excused. */
export type Asked = "resume" | "rename" | "archive" | "end" | "purge";

const SessionActs = lazy((later) => later.SessionActs);
const SessionQuestions = lazy((later) => later.SessionQuestions);

export function SessionMenu({ session }: { session: Session }) {
  const [asked, setAsked] = useState<Asked | null>(null);
  return (
    <>
      <Popover label={`What to do with “${session.title || "Untitled"}”`} icon="more">
        {(close) => (
          <SessionActs
            session={session}
            onChosen={(act) => {
              close();
              setAsked(act);
            }}
          />
        )}
      </Popover>
      {asked && <SessionQuestions key={asked} session={session} asked={asked} onDone={() => setAsked(null)} />}
    </>
  );
}
