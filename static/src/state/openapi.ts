// The OpenAPI document as rows for a person. Pure.

/** What of the document is read. */
export interface OpenApi {
  paths: Record<string, Record<string, RawOperation>>;
  components?: { schemas?: Record<string, Schema> };
}

export interface RawOperation {
  tags?: string[];
  summary?: string;
  parameters?: { name: string; in: string; description?: string; required?: boolean; schema?: Schema }[];
  requestBody?: { content?: Record<string, { schema?: Schema }> };
  responses?: Record<string, { description?: string; content?: Record<string, { schema?: Schema }> }>;
}

export interface Schema {
  $ref?: string;
  type?: string | string[];
  items?: Schema;
  oneOf?: Schema[];
  enum?: unknown[];
  description?: string;
  properties?: Record<string, Schema>;
  required?: string[];
}

/** Something that is sent, in the address, a header or the body. */
export interface Field {
  name: string;
  where: string;
  type: string;
  required: boolean;
  description: string;
}

export interface Operation {
  /** Unique in the document, for links into it. */
  anchor: string;
  method: string;
  path: string;
  summary: string;
  fields: Field[];
  answers: { status: string; what: string }[];
  curl: string;
}

export interface Group {
  name: string;
  operations: Operation[];
}

const ORDER = ["get", "post", "put", "patch", "delete"];
/** What most people look for first. */
const FIRST = ["sessions", "journal"];

/** By tag, those that most people look for first; within a tag by path, and by method as they are usually told. */
export function groups(api: OpenApi): Group[] {
  const found = new Map<string, Operation[]>();
  for (const [path, methods] of Object.entries(api.paths)) {
    const known = ORDER.filter((method) => methods[method]);
    for (const method of known) {
      const raw = methods[method]!;
      const tag = raw.tags?.[0] ?? "other";
      found.set(tag, [...(found.get(tag) ?? []), operation(api, method, path, raw)]);
    }
  }
  const rank = ({ name }: Group) => (FIRST.indexOf(name) + 1 || FIRST.length + 1);
  const all = [...found].map(([name, operations]) => ({ name, operations }));
  return all.sort((a, b) => rank(a) - rank(b));
}

function operation(api: OpenApi, method: string, path: string, raw: RawOperation): Operation {
  const parameters = (raw.parameters ?? []).map((parameter) => ({
    name: parameter.name,
    where: parameter.in,
    type: typeName(parameter.schema),
    required: parameter.required ?? false,
    description: parameter.description ?? "",
  }));
  const body = raw.requestBody?.content?.["application/json"]?.schema;
  const fields = [...parameters, ...(body ? bodyFields(resolve(api, body)) : [])];
  return {
    anchor: `${method}${path.replace(/[^a-zA-Z0-9]+/g, "-").replace(/-$/, "")}`,
    method: method.toUpperCase(),
    path,
    summary: raw.summary ?? "",
    fields,
    answers: Object.entries(raw.responses ?? {}).map(([status, answer]) => ({
      status,
      what: [typeName(Object.values(answer.content ?? {})[0]?.schema), answer.description].filter(Boolean).join(": "),
    })),
    curl: curl(method, path, fields, body !== undefined),
  };
}

function bodyFields(schema: Schema): Field[] {
  return Object.entries(schema.properties ?? {}).map(([name, property]) => ({
    name,
    where: "body",
    type: typeName(property),
    required: schema.required?.includes(name) ?? false,
    description: property.description ?? "",
  }));
}

function resolve(api: OpenApi, schema: Schema): Schema {
  const name = schema.$ref?.split("/").pop();
  return (name && api.components?.schemas?.[name]) || schema;
}

/** Such as `string`, `View`, `SandboxRow[]`, `"jsonl" | "md"`. Empty where nothing is said. */
export function typeName(schema: Schema | undefined): string {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop()!;
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.oneOf) return schema.oneOf.map(typeName).filter((name) => name && name !== "null").join(" | ");
  const types = [schema.type ?? []].flat().filter((type) => type !== "null");
  return types.map((type) => (type === "array" ? `${typeName(schema.items)}[]` : type)).join(" | ");
}

function curl(method: string, path: string, fields: Field[], hasBody: boolean): string {
  const address = path.replace(/\{(\w+)\}/g, (_, name: string) => `$${name.toUpperCase()}`);
  const parts = ["curl", '-H "Authorization: Bearer $TOKEN"'];
  if (method !== "get") parts.push(`-X ${method.toUpperCase()}`, '-H "Content-Type: application/json"');
  if (hasBody) {
    const needed = fields.filter((field) => field.where === "body" && field.required);
    parts.push(`-d '${JSON.stringify(Object.fromEntries(needed.map((field) => [field.name, "…"])))}'`);
  }
  return [...parts, `"http://127.0.0.1:3000${address}"`].join(" ");
}
