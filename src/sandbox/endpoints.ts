/** The ten operations as HTTP endpoints: path, instance parameter, refusal codes, decision and layout. */
import type { Clock } from '../core/clock.ts';
import type { RefusalCodes } from './codes.ts';
import { type Account, AREAS_REFUSALS, INSTANCES_REFUSALS, listAreas, listInstances } from './exclusive.ts';
import { extract, layoutOf } from './extraction.ts';
import type { Instance } from './instance.ts';
import { type Answer, type Layout, plainLine } from './layouts.ts';
import { SANDBOX_OPERATIONS, type SandboxOperationName } from './operations.ts';

export interface Endpoint {
  readonly name: SandboxOperationName;
  readonly path: string;
  /** The parameter that contains the instance id; undefined for operation 10. */
  readonly idName: string | undefined;
  readonly product: string;
  readonly hasRateLimit: boolean;
  readonly refusals: RefusalCodes;
  readonly decide: (call: EndpointCall, state: ServiceState) => Answer | Promise<Answer>;
  readonly layout: (call: EndpointCall) => Layout;
}

export interface ServiceState {
  readonly instances: readonly Instance[];
  readonly account: Account;
  readonly clock: Clock;
}

export interface EndpointCall {
  readonly params: URLSearchParams;
  readonly client: string;
  /** The instance with the id in the call; undefined if no instance of the endpoint's product has this id. */
  readonly instance: Instance | undefined;
  /** Whether the call came before the instance's rate limit allowed it. */
  readonly early: boolean;
}

const JSON_LAYOUT: Layout = { format: 'json', line: plainLine };

export const ENDPOINTS: readonly Endpoint[] = [
  ...SANDBOX_OPERATIONS.map(
    (operation): Endpoint => ({
      name: operation.product,
      path: operation.path,
      idName: operation.idName,
      product: operation.product,
      hasRateLimit: true,
      refusals: operation.refusals,
      decide: (call) => extract({ operation, ...call }, call.instance),
      layout: ({ params, instance }) => layoutOf({ operation, params }, instance),
    }),
  ),
  {
    name: 'areas',
    path: '/ExclusiveProxy/GetAddibleServerList/',
    idName: 'api',
    product: 'exclusive',
    hasRateLimit: false,
    refusals: AREAS_REFUSALS,
    decide: ({ params, instance }) => listAreas(params, instance),
    layout: () => JSON_LAYOUT,
  },
  {
    name: 'instances',
    path: '/ExclusiveProxy/GetInstanceList/',
    idName: undefined,
    product: 'exclusive',
    hasRateLimit: false,
    refusals: INSTANCES_REFUSALS,
    decide: ({ params }, state) => listInstances(params, state),
    layout: () => JSON_LAYOUT,
  },
];
