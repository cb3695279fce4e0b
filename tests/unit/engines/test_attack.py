"""``assay.attack``: one attack on tensors, for any kind of head."""

import pytest
import torch
from torch import Tensor, nn

import assay
from assay.core.cases import InputSpec
from assay.core.errors import UsageError
from assay.subjects.sources.module import ModuleTarget


class Line(nn.Module):
    """Scores (0.5 - x, x - 0.5) of one number."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([0.5 - x, x - 0.5], 1)


def test_a_failed_row_is_its_clean_input_and_says_so() -> None:
    x, y = torch.tensor([[0.45], [0.1], [0.9]]), torch.tensor([0, 0, 0])
    made = assay.attack("pgd", Line(), x, y, eps=0.1)
    assert made.info["success"].tolist() == [True, False, True]
    assert made.x[0] > 0.5
    assert made.x[1:].equal(x[1:]), "one could not be moved far enough, the other was wrong already"
    assert made.info["pred"].tolist() == [1, 0, 1]
    assert made.info["size"][1:].tolist() == [0, 0]


def test_targeted_succeeds_where_the_wanted_class_is_reached() -> None:
    x = torch.tensor([[0.45], [0.1]])
    made = assay.attack("pgd(targeted=true)", Line(), x, torch.tensor([1, 1]), eps=0.1)
    assert made.info["success"].tolist() == [True, False]


def test_several_labels_can_be_attacked() -> None:
    class Labels(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x - 0.5

    x, y = torch.tensor([[0.55, 0.1], [0.9, 0.1]]), torch.tensor([[1, 0], [1, 0]])
    made = assay.attack("pgd(loss=multilabel, criterion=every_label)", Labels(), x, y, eps=0.1)
    assert made.info["success"].tolist() == [True, False]


def test_a_regression_can_be_attacked() -> None:
    net = nn.Linear(2, 1, bias=False)
    nn.init.constant_(net.weight, 1.0)
    x, y = torch.full((1, 2), 0.5), torch.tensor([1.0])
    for tolerance, fooled in ((0.15, True), (0.25, False)):
        name = f'bim(loss=squared, criterion="within(tolerance={tolerance})", random_start=false)'
        with pytest.raises(UsageError, match="no parameter"):
            assay.attack(name, net, x, y, eps=0.1)
        name = f'pgd(loss=squared, criterion="within(tolerance={tolerance})")'
        assert assay.attack(name, net, x, y, eps=0.1).info["success"].tolist() == [fooled]


def test_suites_are_refused() -> None:
    with pytest.raises(UsageError, match="takes one attack"):
        assay.attack("fgsm,pgd", Line(), torch.zeros(1, 1), torch.tensor([0]), eps=0.1)


def test_net_and_weights_come_back_as_they_were() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout()).train()
    assay.attack("apgd-ce", net, torch.rand(4, 2), torch.tensor([0, 1, 0, 1]), eps=0.1)
    assert net.training
    assert all(p.grad is None and p.requires_grad for p in net.parameters())


def test_inputs_outside_the_bounds_are_refused() -> None:
    y = torch.tensor([0])
    for x in (torch.tensor([[-0.5]]), torch.tensor([[1]])):
        with pytest.raises(UsageError, match=r"numbers in \[0, 1\]"):
            assay.attack("pgd", Line(), x, y, eps=0.1)
    assert len(assay.attack("pgd", Line(), torch.tensor([[-0.5]]), y, eps=0.1, bounds=(-1, 1))) == 1
    with pytest.raises(UsageError, match="one label a row"):
        assay.attack("apgd_ce", Line(), torch.tensor([[0.5]]), torch.tensor([[1, 0]]), eps=0.1)


def test_the_bounds_of_a_target_are_its_own() -> None:
    target = ModuleTarget(Line(), InputSpec((1,), (-1.0, 1.0), ("low", "high")))
    made = assay.attack("pgd", target, torch.tensor([[-0.9], [0.45]]), torch.tensor([0, 0]), eps=0.1)
    assert made.info["success"].tolist() == [False, True]
