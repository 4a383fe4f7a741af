// A recorded session, shown without any agent: from a file of this server, or one that the person chooses.

import { useEffect, useState } from "preact/hooks";
import { show } from "../state/current";
import { Player } from "../state/player";
import { readRecording } from "../wire/record";
import { fetchText } from "../wire/manage";
import { Chat } from "./Chat";
import { DropZone } from "./DropZone";
import { Page } from "./Page";
import { PlayerBar } from "./PlayerBar";
import { Problem } from "./Problem";
import { SessionHeader } from "./SessionHeader";
import { SessionView } from "./SessionView";
import { pageSkeleton } from "./lazy";

export function Recording({ file }: { file: string }) {
  const [player, setPlayer] = useState<Player | null>(null);
  const [problem, setProblem] = useState<string | null>(null);

  const open = async (read: Promise<string>) => {
    try {
      setPlayer(new Player(readRecording(await read)));
      setProblem(null);
    } catch (error) {
      setProblem(`This is no recording that can be shown: ${(error as Error).message}.`);
    }
  };

  useEffect(() => {
    if (file) void open(fetchText(file));
  }, [file]);

  if (player) return <Shown player={player} />;
  if (file && !problem) return pageSkeleton;
  return <Chooser problem={problem} onFile={(chosen) => void open(chosen.text())} />;
}

function Shown({ player }: { player: Player }) {
  const [ready, setReady] = useState(false);

  useEffect(() => {
    const hide = show(player.live);
    setReady(true);
    return () => {
      hide();
      player.close();
    };
  }, [player]);

  if (!ready) return null;
  return (
    <SessionView
      live={player.live}
      header={<SessionHeader live={player.live} />}
      chat={
        <>
          <Chat live={player.live} />
          <div class="dock">
            <PlayerBar player={player} />
          </div>
        </>
      }
    />
  );
}

function Chooser({ problem, onFile }: { problem: string | null; onFile: (file: File) => void }) {
  return (
    <DropZone hint="Drop to open it" onFiles={([dropped]) => dropped && onFile(dropped)}>
      <Page title="Open a recording">
        <p class="muted">
          A session that was exported as JSONL, or frames that were saved in the Events tab. It is shown here as it was;
          nothing is sent anywhere, and nothing runs.
        </p>
        <input
          type="file"
          aria-label="Recording"
          accept=".jsonl,application/x-ndjson"
          onChange={(event) => {
            const chosen = event.currentTarget.files?.[0];
            if (chosen) onFile(chosen);
          }}
        />
        {problem && <Problem text={problem} />}
      </Page>
    </DropZone>
  );
}
