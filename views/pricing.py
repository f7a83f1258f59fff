"""The scenario's price card and caching rule, as the pages show them."""

import streamlit as st

from calc.caching import CachingRule, caching_rule
from calc.cost import PriceCard, with_prices
from calc.prices import price_card
from views.inputs import Scenario


@st.cache_data(max_entries=200, show_spinner=False)
def _listed_card(model: str, date: str) -> PriceCard:
    return price_card(model, date=date)


def scenario_card(scenario: Scenario) -> PriceCard:
    """The card that the scenario is priced as, with the prices typed by hand."""
    return with_prices(_listed_card(scenario.card, scenario.date.isoformat()), **dict(scenario.prices))


def scenario_rule(scenario: Scenario, card: PriceCard) -> CachingRule:
    """The caching rule of the card's model, with the minimum typed by hand."""
    return caching_rule(card.provider, card.model, minimum_tokens=scenario.minimum)
