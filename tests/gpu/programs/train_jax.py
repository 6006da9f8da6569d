"""JAX on the GPU that the task has: a line is fitted."""

import jax
import jax.numpy as jnp
import seen

import tony

tony.jax_initialize()
seen.by_jax()
x = jax.random.normal(jax.random.key(0), (4096, 64))
wanted = jnp.arange(64.0)
y = x @ wanted


@jax.jit
def step(weights):
    loss, slope = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(weights)
    return weights - 0.1 * slope, loss


weights = jnp.zeros(64)
for number in range(100):
    weights, loss = step(weights)
    tony.report(step=number + 1, metrics={"loss": float(loss)})
where = next(iter(weights.devices())).platform
assert float(loss) < 1e-3, loss
print(f"fitted on {where}", flush=True)
