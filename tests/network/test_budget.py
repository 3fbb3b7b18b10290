from horolog.network.budget import ByteBudget


def test_bytes_are_taken_until_the_budget_is_spent() -> None:
    budget = ByteBudget(100)
    assert budget.take(60)
    assert not budget.take(50)
    assert budget.take(40)
    budget.give(40)
    assert budget.used == 60


def test_what_is_alone_fits_whatever_the_limit() -> None:
    budget = ByteBudget(100)
    assert budget.take(1000)
    assert not budget.take(1)


def test_those_who_wait_go_on_in_the_order_they_came() -> None:
    budget = ByteBudget(100)
    budget.force(100)
    went: list[str] = []
    budget.wait(70, lambda: went.append("a"))
    budget.wait(20, lambda: went.append("b"))
    assert not budget.take(0), "nobody overtakes"
    budget.give(50)
    assert went == []
    budget.give(50)
    assert went == ["a", "b"]
    assert budget.used == 90
    assert not budget.someone_waits


def test_one_who_waits_no_longer_is_passed_over() -> None:
    budget = ByteBudget(100)
    budget.force(100)
    went: list[str] = []

    def never() -> None:
        went.append("never")

    budget.wait(70, never)
    budget.wait(20, lambda: went.append("b"))
    budget.cancel(never)
    budget.give(100)
    assert went == ["b"]
    assert budget.used == 20
