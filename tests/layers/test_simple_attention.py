"""Linear attention to all nodes against the explicit N x N weights, and its invariants."""

from functools import partial

import pytest
import torch

from rankformer.layers.simple_attention import (
    HeadWeights,
    SimpleAttention,
    attention_of_rows,
    linear_attention,
    simple_attention_reference,
)

difformer_attention, sgformer_attention = (partial(linear_attention, kind) for kind in ("difformer", "sgformer"))
difformer_attention_reference, sgformer_attention_reference, sigmoid_attention = (
    partial(simple_attention_reference, kind) for kind in ("difformer", "sgformer", "sigmoid")
)
LINEAR = [difformer_attention, sgformer_attention]
REFERENCE = {difformer_attention: difformer_attention_reference, sgformer_attention: sgformer_attention_reference}
ALL = [*LINEAR, *REFERENCE.values(), sigmoid_attention]


def random_heads(nodes, seed, heads=2, dim=5):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(nodes, heads, dim, dtype=torch.float64, generator=generator)


def random_qkv(nodes=40, heads=2, value_heads=None):
    q, k = random_heads(nodes, 0, heads), random_heads(nodes, 1, heads)
    return q, k, random_heads(nodes, 2, value_heads or heads)


def weights_of(attention, q, k, norm):
    """The (N, N) weights of one head: what the attention makes of the unit matrix."""
    return attention(q, k, torch.eye(len(q), dtype=q.dtype)[:, None], norm)[:, 0]


@pytest.mark.parametrize("norm", ["frobenius", "row"])
@pytest.mark.parametrize(("heads", "value_heads"), [(1, 1), (3, 3), (3, 1)])
@pytest.mark.parametrize("attention", LINEAR)
def test_the_linear_form_is_the_explicit_one_in_values_and_gradients(attention, heads, value_heads, norm):
    qkv = [part.requires_grad_() for part in random_qkv(40, heads, value_heads)]
    probe = random_heads(40, 3, heads)
    out, wanted = attention(*qkv, norm), REFERENCE[attention](*qkv, norm)
    assert out.shape == (40, heads, 5)
    torch.testing.assert_close(out, wanted, rtol=0, atol=1e-12)
    got, dense = (torch.autograd.grad((values * probe).sum(), qkv) for values in (out, wanted))
    for ours, theirs in zip(got, dense, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("norm", ["frobenius", "row"])
def test_the_weights_are_those_of_the_papers(norm):
    q, k = random_heads(30, 4, heads=1), random_heads(30, 5, heads=1)
    q_unit, k_unit = (
        part[:, 0] / (part.norm() if norm == "frobenius" else part[:, 0].norm(dim=1, keepdim=True)) for part in (q, k)
    )
    scores = {
        difformer_attention: 1 + q_unit @ k_unit.T,
        sgformer_attention: 30 * torch.eye(30, dtype=q.dtype) + q_unit @ k_unit.T,
        sigmoid_attention: torch.sigmoid(q[:, 0] @ k[:, 0].T if norm == "frobenius" else q_unit @ k_unit.T),
    }
    for attention, score in scores.items():
        got = weights_of(attention, q, k, norm)
        torch.testing.assert_close(got, score / score.sum(1, keepdim=True), rtol=0, atol=1e-14)
        torch.testing.assert_close(got.sum(1), torch.ones_like(got[0]), rtol=0, atol=1e-13)


@pytest.mark.parametrize("norm", ["frobenius", "row"])
@pytest.mark.parametrize("attention", ALL)
def test_values_that_are_all_alike_stay_so(attention, norm):
    q, k, v = random_qkv()
    same = v[:1].expand_as(v)
    torch.testing.assert_close(attention(q, k, same, norm), same, rtol=0, atol=1e-12)


@pytest.mark.parametrize("norm", ["frobenius", "row"])
@pytest.mark.parametrize("attention", LINEAR)
def test_the_size_of_queries_and_keys_does_not_matter(attention, norm):
    q, k, v = random_qkv()
    torch.testing.assert_close(attention(7 * q, 0.01 * k, v, norm), attention(q, k, v, norm), rtol=0, atol=1e-12)


def test_the_size_of_queries_matters_to_the_sigmoid():
    q, k, v = random_qkv()
    assert (sigmoid_attention(3 * q, k, v) - sigmoid_attention(q, k, v)).abs().max() > 0.01


def test_sigmoid_weights_lie_between_zero_and_one_and_queries_of_zero_give_the_mean():
    q, k, v = random_qkv()
    weights = weights_of(sigmoid_attention, q[:, :1], k[:, :1], "frobenius")
    assert weights.min() > 0
    assert weights.max() < 1
    torch.testing.assert_close(sigmoid_attention(0 * q, k, v), v.mean(0, keepdim=True).expand_as(v))


@pytest.mark.parametrize("norm", ["frobenius", "row"])
@pytest.mark.parametrize("attention", LINEAR)
def test_queries_of_zero_leave_only_the_constant_and_pass_finite_gradients(attention, norm):
    q, k, v = random_qkv()
    q = torch.zeros_like(q).requires_grad_()
    out = attention(q, k, v, norm)
    torch.testing.assert_close(out, v if attention is sgformer_attention else v.mean(0, keepdim=True).expand_as(v))
    out.square().sum().backward()
    assert q.grad.isfinite().all()


def test_difformer_tends_to_the_mean_of_the_values_like_one_over_the_nodes():
    def distance(nodes):
        q, k, noise = random_qkv(nodes, heads=1)
        v = k + 0.1 * noise
        return nodes * (difformer_attention(q, k, v) - v.mean(0)).norm(dim=-1).mean().item()

    few, many = distance(100), distance(6400)
    assert few == pytest.approx(many, rel=0.3)


def test_sgformer_stays_within_its_bound_of_the_values_and_ever_closer():
    gaps = []
    for nodes in (30, 300, 3000):
        q, k, v = random_qkv(nodes, heads=1)
        gaps.append((sgformer_attention(q, k, v) - v).norm() / v.norm())
        assert gaps[-1] <= (1 + nodes**0.5) / (nodes - nodes**0.5)
    assert gaps[0] > 10 * gaps[1] > 100 * gaps[2] > 0


@pytest.mark.parametrize(("attention", "constant"), [(difformer_attention, "mean"), (sgformer_attention, "itself")])
def test_equal_heads_are_one_head_with_its_products_divided_by_their_number(attention, constant):
    q, k, v = random_qkv(30, heads=1)
    out = attention(*(part.expand(-1, 3, -1) for part in (q, k, v)))
    products = (q[:, 0] @ k[:, 0].T) / (q.norm() * k.norm() * 3)
    weights = products + (1 if constant == "mean" else 30 * torch.eye(30, dtype=q.dtype))
    wanted = (weights / weights.sum(1, keepdim=True)) @ v[:, 0]
    for head in range(3):
        torch.testing.assert_close(out[:, head], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("attention", ALL)
def test_the_order_of_the_nodes_does_not_matter(attention):
    q, k, v = random_qkv()
    order = torch.randperm(40, generator=torch.Generator().manual_seed(6))
    torch.testing.assert_close(attention(q[order], k[order], v[order]), attention(q, k, v)[order])


@pytest.mark.parametrize("norm", ["frobenius", "row"])
@pytest.mark.parametrize("attention", LINEAR)
def test_nothing_as_large_as_all_pairs_is_kept_for_the_backward_pass(attention, norm):
    kept = []
    qkv = [part.requires_grad_() for part in random_qkv(200, heads=1)]
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        attention(*qkv, norm)
    assert max(kept) <= 200 * 5


def random_weights(heads, value_heads, dim=5):
    parts = [random_heads(dim + 1, seed, count, dim) for seed, count in ((7, heads), (8, heads), (9, value_heads))]
    return HeadWeights(*(part.requires_grad_() for part in parts))


@pytest.mark.parametrize(("heads", "value_heads"), [(1, 1), (3, 3), (3, 1)])
@pytest.mark.parametrize("attention", LINEAR)
def test_attention_of_rows_is_that_of_their_projections_in_values_and_gradients(attention, heads, value_heads):
    rows, weights = random_heads(40, 0)[:, 0].requires_grad_(), random_weights(heads, value_heads)
    extended = torch.cat([rows, torch.ones(40, 1, dtype=rows.dtype)], 1)
    out = attention_of_rows(attention.args[0], rows, weights)
    wanted = REFERENCE[attention](*(torch.einsum("na,ahi->nhi", extended, part) for part in weights))
    torch.testing.assert_close(out, wanted, rtol=0, atol=1e-12)
    probe = random_heads(40, 3, heads)
    got, dense = (torch.autograd.grad((values * probe).sum(), (rows, *weights)) for values in (out, wanted))
    for ours, theirs in zip(got, dense, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11)


@pytest.mark.parametrize("kind", ["difformer", "sgformer"])
def test_weights_of_zero_leave_only_the_constant_and_pass_finite_gradients(kind):
    rows, weights = random_heads(40, 0)[:, 0].requires_grad_(), random_weights(2, 2)
    query = torch.zeros_like(weights.query).requires_grad_()
    out = attention_of_rows(kind, rows, weights._replace(query=query))
    values = torch.einsum("na,ahi->nhi", rows, weights.value[:-1]) + weights.value[-1]
    torch.testing.assert_close(out, values if kind == "sgformer" else values.mean(0, keepdim=True).expand_as(values))
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(out.square().sum(), (rows, query)))


@pytest.mark.parametrize("kind", ["difformer", "sgformer"])
def test_attention_of_rows_keeps_neither_queries_nor_keys(kind):
    kept = []
    rows, weights = random_heads(200, 0)[:, 0].requires_grad_(), random_weights(1, 1)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        attention_of_rows(kind, rows, weights)
    large = {t.data_ptr() for t in kept if t.numel() >= 200 * 5}
    assert len(large) == 2  # the rows and the numerator


@pytest.mark.parametrize("norm", ["frobenius", "row"])
@pytest.mark.parametrize(("heads", "use_weight"), [(1, False), (2, False), (2, True)])
@pytest.mark.parametrize("kind", ["difformer", "sgformer", "sigmoid"])
def test_the_module_is_the_mean_over_heads(kind, heads, use_weight, norm):
    module = SimpleAttention(kind, 5, heads, use_weight, norm, torch.Generator().manual_seed(0)).double()
    rows = random_heads(40, 0)[:, 0]
    q, k, v = module.projections(rows)
    attention = {
        "difformer": difformer_attention_reference,
        "sgformer": sgformer_attention_reference,
        "sigmoid": sigmoid_attention,
    }
    torch.testing.assert_close(module(rows), attention[kind](q, k, v, norm).mean(1), rtol=0, atol=1e-12)
    torch.testing.assert_close(module.mean_values(rows), v.mean(1), rtol=0, atol=1e-12)
    assert (len(dict(module.named_parameters())) == 6) == use_weight
