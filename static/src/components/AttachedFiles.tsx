// Files of a sent message: pictures as thumbnails, others as links.

import { isPicture } from "../state/pictures";
import { fileAddress } from "../wire/rest";
import { lazy } from "./lazy";

const Thumbnail = lazy((later) => later.Thumbnail, <span class="thumbnail" />);

interface AttachedFilesProps {
  paths: readonly string[];
  /** Session of the files. A recording has none. */
  session?: string | undefined;
}

export function AttachedFiles({ paths, session }: AttachedFilesProps) {
  const addressOf = (path: string) => (session === undefined ? undefined : fileAddress(session, path));
  const pictures = paths.filter((path) => isPicture(path) && addressOf(path) !== undefined);
  const others = paths.filter((path) => !pictures.includes(path));
  return (
    <>
      {pictures.length > 0 && (
        <div class="thumbnails">
          {pictures.map((path) => (
            <Thumbnail key={path} address={addressOf(path)!} name={path} />
          ))}
        </div>
      )}
      {others.length > 0 && (
        <span class="under" dir="auto">
          with{" "}
          {others.map((path, index) => (
            <>
              {index > 0 && ", "}
              {addressOf(path) === undefined ? path : <a href={addressOf(path)} download>{path}</a>}
            </>
          ))}
        </span>
      )}
    </>
  );
}
