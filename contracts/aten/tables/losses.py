"""Losses: of each element, their mean or their sum (`reduction` 0, 1, 2)."""

from kfuzz.contracts.aten.rows import shadowed

shadowed("mse_loss l1_loss")
shadowed("smooth_l1_loss", beta=(1.0, 0.5))
shadowed("huber_loss", delta=(1.0, 0.5))
shadowed("soft_margin_loss")
shadowed("kl_div", log_target=(False, True))
shadowed("hinge_embedding_loss", margin=(1.0, 0.5))
shadowed("margin_ranking_loss", "*", "*", "*", margin=(0.0, 0.5))
shadowed("poisson_nll_loss", log_input=(True,), full=False, eps=1e-8)
shadowed("binary_cross_entropy_with_logits", "*", "*", "weight:*?", None)
shadowed("binary_cross_entropy", "[0, 1]: *", "[0, 1]: *", "weight:*?")
shadowed("nll_loss", "N C", "below C: N", "weight: C?", ignore_index=-100)
shadowed("nll_loss_nd", "N C", "below C: N", "weight: C?", ignore_index=-100)
shadowed("nll_loss2d", "N C H W", "below C: N H W", "weight: C?", ignore_index=-100)
shadowed("cosine_embedding_loss", "N D", "N D", "N", margin=(0.0, 0.5))
shadowed("triplet_margin_loss", "N D", margin=(1.0, 0.5), p=2, eps=1e-6, swap=False)
shadowed("cosine_similarity", "N D", dim=1, eps=1e-8)
shadowed("pairwise_distance", "N D", p=2, eps=1e-6, keepdim=(False, True))
