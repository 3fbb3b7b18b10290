from horolog.network import ByteBudget


def test_bytes_are_taken_until_the_budget_is_spent() -> None:
    budget = ByteBudget(100)
    one, other = budget.account(), budget.account()
    assert one.take(60)
    assert not other.take(50)
    assert other.take(40)
    other.give(40)
    assert (budget.used, one.held, other.held) == (60, 60, 0)


def test_what_is_alone_fits_whatever_the_limit() -> None:
    budget = ByteBudget(100)
    assert budget.account().take(1000)
    assert not budget.account().take(1)


def test_waiting_accounts_are_granted_smallest_first_without_overtaking() -> None:
    budget = ByteBudget(100)
    full, first, second = budget.account(), budget.account(), budget.account()
    full.force(100)
    went: list[str] = []
    first.wait(70, lambda: went.append("a"))
    second.wait(20, lambda: went.append("b"))
    assert not budget.account().take(0), "first come, first served"
    full.give(10)
    assert went == []
    full.give(10)
    assert went == ["b"]
    full.give(70)
    assert went == ["b", "a"]
    full.give(10)
    assert budget.used == 90
    assert (first.held, second.held) == (70, 20)
    assert not budget.is_under_pressure


def test_an_account_that_stopped_waiting_is_skipped() -> None:
    budget = ByteBudget(100)
    full, first, second = budget.account(), budget.account(), budget.account()
    full.force(100)
    went: list[str] = []
    first.wait(70, lambda: went.append("never"))
    second.wait(20, lambda: went.append("b"))
    first.close()
    full.give(100)
    assert went == ["b"]
    assert budget.used == 20


def test_closing_an_account_gives_back_all_that_it_holds() -> None:
    budget = ByteBudget(100)
    full, waiting = budget.account(), budget.account()
    full.force(100)
    went: list[str] = []
    waiting.wait(70, lambda: went.append("a"))
    full.close()
    assert went == ["a"]
    waiting.close()
    assert budget.used == 0


def test_where_all_is_held_by_requests_that_wait_one_after_the_other_may_be_finished() -> None:
    budget = ByteBudget(100)
    one, other = budget.account(), budget.account()
    for account in one, other:
        account.force(50)
    went: list[str] = []
    one.wait(30, lambda: went.append("one"))
    assert went == ["one"], "half of what is held waits for itself"
    other.wait(30, lambda: went.append("other"))
    assert went == ["one"], "one at a time goes beyond the limit"
    assert one.take(500), "until its request is whole"
    one.finish_request()
    assert went == ["one"], "what is whole is answered, and gives its bytes back"
    one.give(one.held)
    assert went == ["one", "other"]


def test_an_account_that_holds_nothing_does_not_exceed_the_limit() -> None:
    budget = ByteBudget(100)
    budget.account().force(100)
    went: list[str] = []
    budget.account().wait(30, lambda: went.append("a"))
    assert went == []


def test_pressure_is_reported_when_an_account_waits_and_over_the_limit() -> None:
    told: list[int] = []
    budget = ByteBudget(100, lambda: told.append(budget.used))
    one = budget.account()
    one.force(100)
    assert told == []
    one.force(1)
    assert told == [101]
    assert budget.is_under_pressure
    one.give(1)
    assert not budget.is_under_pressure
    budget.account().wait(20, lambda: None)
    assert budget.is_under_pressure
    assert budget.missing == 20
