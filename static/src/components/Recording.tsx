// Recorded session without an agent, from this server or from the user's disk.

import { useEffect, useState } from "preact/hooks";
import { showSession } from "../state/currentSession";
import { RecordingPlayer } from "../state/recordingPlayer";
import { readRecording } from "../wire/recordingFile";
import { fetchText } from "../wire/lazyRest";
import { Chat } from "./Chat";
import { DropZone } from "./DropZone";
import { PlainPage } from "./PlainPage";
import { PlayerBar } from "./PlayerBar";
import { ErrorNotice } from "./ErrorNotice";
import { SessionHeader } from "./SessionHeader";
import { SessionView } from "./SessionView";
import { pageSkeleton } from "./lazy";

export function Recording({ file }: { file: string }) {
  const [player, setPlayer] = useState<RecordingPlayer | null>(null);
  const [problem, setProblem] = useState<string | null>(null);

  const open = async (read: Promise<string>) => {
    try {
      setPlayer(new RecordingPlayer(readRecording(await read)));
      setProblem(null);
    } catch (error) {
      setProblem(`Couldn't open the recording: ${(error as Error).message}.`);
    }
  };

  useEffect(() => {
    if (file) void open(fetchText(file));
  }, [file]);

  if (player) return <RecordingView player={player} />;
  if (file && !problem) return pageSkeleton;
  return <Chooser problem={problem} onFile={(chosen) => void open(chosen.text())} />;
}

function RecordingView({ player }: { player: RecordingPlayer }) {
  const [ready, setReady] = useState(false);

  useEffect(() => {
    const hide = showSession(player.live);
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
    <DropZone hint="Drop to open" onFiles={([dropped]) => dropped && onFile(dropped)}>
      <PlainPage title="Open a recording">
        <p class="muted">
          Choose a JSONL export or an Events download. Nothing is sent or run.
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
        {problem && <ErrorNotice text={problem} />}
      </PlainPage>
    </DropZone>
  );
}
