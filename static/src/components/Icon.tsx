// The icons, drawn on a grid of 16 with one stroke width.

const PATHS = {
  plus: "M8 3v10M3 8h10",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10ZM11 11l3 3",
  menu: "M2 4h12M2 8h12M2 12h12",
  more: "M3 8h.01M8 8h.01M13 8h.01",
  send: "M8 13V3M4 7l4-4 4 4",
  down: "M8 3v10M4 9l4 4 4-4",
  stop: "M4 4h8v8H4z",
  pause: "M5.5 3v10M10.5 3v10",
  play: "M5 3l8 5-8 5z",
  info: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM8 7.5V11M8 5h.01",
  chevron: "M6 4l4 4-4 4",
  cross: "M4 4l8 8M12 4l-8 8",
  pencil: "M3 13l.7-2.8L10.5 3.4a1.2 1.2 0 0 1 1.7 0l.4.4a1.2 1.2 0 0 1 0 1.7L5.8 12.3 3 13Z",
  terminal: "M3 4l4 4-4 4M8.5 12H13",
  file: "M4 2h5l3 3v9H4zM9 2v3h3",
  globe: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM2 8h12M8 2c4 4 4 8 0 12M8 2C4 6 4 10 8 14",
  tool: "M10 2.5a3.5 3.5 0 0 0-3.2 4.9L2.5 11.7l1.8 1.8 4.3-4.3A3.5 3.5 0 0 0 13.4 5L11 7.3 8.7 5 11 2.6",
  actors: "M8 5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3ZM4 14a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3ZM12 14a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3ZM8 5v3M4 11V8h8v3",
  system: "M2 3h12v8H2zM5.5 14h5M8 11v3",
  light: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM8 1v1M8 14v1M1 8h1M14 8h1M3 3l.7.7M12.3 12.3l.7.7M13 3l-.7.7M3.7 12.3 3 13",
  dark: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5Z",
  plan: "M2.5 4.5l1 1 2-2M2.5 10.5l1 1 2-2M8 4.5h5.5M8 10.5h5.5",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
