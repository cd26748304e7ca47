"""Two terms of the loss of variational autoencoders with several latents: KL divergence and contrastive loss."""

import torch
from torch import Tensor
from torch.nn.functional import normalize


def divergence(mean: Tensor, scale: Tensor) -> Tensor:
    """Return the KL divergence from the standard normal, summed over d, the mean over rows and aspects (A, b, d)."""
    scale = scale.clamp(min=1e-6)  # 0 has no logarithm
    return 0.5 * (mean.square() + scale.square() - 1 - 2 * scale.log()).sum(2).mean()


def aspect_contrast(z: Tensor, v: Tensor, temperature: float) -> Tensor:
    """Return -mean_r sum_a ln(pos / den) of latents z and neighbourhoods v, (A, b, d); den holds the positive twice."""
    z, v = normalize(z, dim=2), normalize(v, dim=2) / temperature
    by_aspect = torch.einsum("ard,crd->arc", v, z)  # (A, b, A)
    by_row = torch.bmm(v, z.mT)  # (A, b, b)
    norm = torch.cat([by_aspect, by_row], dim=2).logsumexp(2)
    return (norm - (v * z).sum(2)).sum(0).mean()
